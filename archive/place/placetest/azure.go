package placetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// azurite is Azurite, which speaks the protocol of Azure Blob Storage. For some seconds, it keeps
// the list of objects only in memory.
type azurite struct{}

const (
	azureAccount = "tusk"
	azureKey     = "dHVzay1rZXk="
)

func (azurite) install(cache string) (string, string) {
	return filepath.Join(cache, "tusk-azurite-3.35.0", "node_modules", "azurite", "dist", "src", "blob", "main.js"),
		"scripts/azure-deps"
}

func (azurite) ports() []string { return []string{"blobPort"} }

func (azurite) command(program, dir, _ string, ports map[string]int) *exec.Cmd {
	cmd := exec.Command("node", program, "--blobHost", "127.0.0.1", "--blobPort", strconv.Itoa(ports["blobPort"]),
		"--location", filepath.Join(dir, "objects"), "--silent", "--skipApiVersionCheck", "--disableTelemetry")
	cmd.Env = append(os.Environ(), "AZURITE_ACCOUNTS="+azureAccount+":"+azureKey)
	return cmd
}

func (azurite) ready(address string) error {
	key, err := container.NewSharedKeyCredential(azureAccount, azureKey)
	if err != nil {
		return err
	}
	client, err := container.NewClientWithSharedKeyCredential("http://"+address+"/"+azureAccount+"/"+bucket, key, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err = client.Create(ctx, nil); bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
		return nil
	}
	return err
}

func (azurite) environment() map[string]string {
	return map[string]string{"AZURE_STORAGE_ACCOUNT": azureAccount, "AZURE_STORAGE_KEY": azureKey}
}

func (azurite) location(address, prefix string) string {
	return "azblob://" + bucket + "?protocol=http&domain=" + address + "&prefix=" + prefix
}

func (azurite) pyarrow(address, prefix string) string {
	return fmt.Sprintf(`fs.AzureFileSystem(%q, account_key=%q, blob_storage_authority=%q, dfs_storage_authority=%q, `+
		`blob_storage_scheme="http", dfs_storage_scheme="http"), %q`,
		azureAccount, azureKey, address, address, bucket+"/"+prefix)
}

func (azurite) durable() bool { return false }
