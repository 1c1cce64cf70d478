package placetest

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// fakeGoogle is fake-gcs-server, which speaks the protocol of Google Cloud Storage. It keeps each
// object in a file, and writes the object's attributes afterwards. If it is killed in between, it
// can no longer list the bucket.
type fakeGoogle struct{}

func (fakeGoogle) install(cache string) (string, string) {
	return filepath.Join(cache, "tusk-fake-gcs-server-1.56.1", "fake-gcs-server"), "scripts/gcs-deps"
}

func (fakeGoogle) ports() []string { return []string{"port"} }

func (fakeGoogle) command(program, dir, address string, ports map[string]int) *exec.Cmd {
	return exec.Command(program, "-scheme=http", "-host=127.0.0.1", "-port="+strconv.Itoa(ports["port"]),
		"-backend=filesystem", "-filesystem-root="+filepath.Join(dir, "objects"), "-external-url=http://"+address,
		"-public-host="+address, "-log-level=warn")
}

func (fakeGoogle) ready(address string) error {
	answer, err := http.Post("http://"+address+"/storage/v1/b?project=tusk", "application/json",
		strings.NewReader(`{"name": "`+bucket+`"}`))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusConflict { // it exists
		return nil
	}
	said, _ := io.ReadAll(answer.Body)
	return fmt.Errorf("%s: %s", answer.Status, said)
}

func (fakeGoogle) environment() map[string]string { return nil }

func (fakeGoogle) location(address, prefix string) string {
	return "gs://" + bucket + "?anonymous=true&endpoint=http://" + address + "&prefix=" + prefix
}

func (fakeGoogle) pyarrow(address, prefix string) string {
	return fmt.Sprintf(`fs.GcsFileSystem(anonymous=True, endpoint_override=%q, scheme="http"), %q`, address,
		bucket+"/"+prefix)
}

func (fakeGoogle) durable() bool { return false }
