package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
)

// openAzure opens a container of Azure Blob Storage. Its parameters are those of
// gocloud.dev/blob/azureblob.
func openAzure(ctx context.Context, u *url.URL, patience time.Duration) (*blob.Bucket, error) {
	service := azureblob.NewDefaultServiceURLOptions()
	if service.SASToken != "" { // it is sent as it is
		for name := range u.Query() {
			if slices.Contains([]string{"domain", "protocol", "cdn", "localemu"}, name) {
				return nil,
					fmt.Errorf("the URL must not have %q with AZURE_STORAGE_SAS_TOKEN: set AZURE_STORAGE_DOMAIN and the like", name)
			}
		}
	}
	o := azcore.ClientOptions{Transport: discreet{http.Client{Transport: transport(patience)}},
		Retry: policy.RetryOptions{MaxRetries: attempts - 1}}
	opener := azureblob.URLOpener{ServiceURLOptions: *service,
		MakeClient: func(at azureblob.ServiceURL, name azureblob.ContainerName) (*container.Client, error) {
			return azureContainer(string(at), string(name), &o)
		}}
	return opener.OpenBucketURL(ctx, u)
}

// azureContainer returns a client with the credentials in the environment: an account key, a shared
// access signature, a connection string, or an identity.
func azureContainer(service, name string, o *azcore.ClientOptions) (*container.Client, error) {
	at, err := url.JoinPath(service, name)
	if err != nil {
		// The error leaves out the address, which may contain a signature.
		return nil, errors.New("the address of the storage account cannot be read")
	}
	options := &container.ClientOptions{ClientOptions: *o}
	account, key := os.Getenv("AZURE_STORAGE_ACCOUNT"), os.Getenv("AZURE_STORAGE_KEY")
	if account != "" && key != "" {
		shared, err := container.NewSharedKeyCredential(account, key)
		if err != nil {
			return nil, err
		}
		return container.NewClientWithSharedKeyCredential(at, shared, options)
	}
	if os.Getenv("AZURE_STORAGE_SAS_TOKEN") != "" {
		return container.NewClientWithNoCredential(at, options)
	}
	for _, variable := range []string{"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGEBLOB_CONNECTIONSTRING"} {
		if text := os.Getenv(variable); text != "" {
			return container.NewClientFromConnectionString(text, name, options)
		}
	}
	identity, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: *o})
	if err != nil {
		return nil, err
	}
	return container.NewClient(at, identity, options)
}

// discreet sends requests. Its errors leave out the URL, which may contain a signature.
type discreet struct{ client http.Client }

// Do implements policy.Transporter.
func (d discreet) Do(r *http.Request) (*http.Response, error) {
	r = r.WithContext(r.Context()) // a copy
	if r.Body != nil && r.Body != http.NoBody {
		body := &lent{of: r.Body}
		r.Body = body
		defer body.end()
	}
	answer, err := d.client.Do(r)
	var told *url.Error
	if errors.As(err, &told) {
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Host, told.Err)
	}
	return answer, err
}

// lent is the body of a request until there is an answer. A server may answer before it has read
// the whole body, and the driver then reads the body again from the beginning for the next try.
type lent struct {
	mu   sync.Mutex
	of   io.ReadCloser
	over bool
}

func (l *lent) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return 0, errAnswered
	}
	return l.of.Read(p)
}

func (l *lent) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil
	}
	return l.of.Close()
}

func (l *lent) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

var errAnswered = errors.New("the request was answered before all of it was sent")
