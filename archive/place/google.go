package place

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/gcp"
	"golang.org/x/oauth2"
	"google.golang.org/api/option"
)

// openGoogle opens a bucket of Google Cloud Storage with the application's default credentials. It
// uses none for another server: with the parameters endpoint and anonymous, or if the environment
// names an emulator.
func openGoogle(ctx context.Context, u *url.URL, patience time.Duration) (*blob.Bucket, error) {
	q := u.Query()
	for name := range q {
		if !slices.Contains([]string{"endpoint", "anonymous"}, name) {
			return nil, fmt.Errorf("the URL has the parameter %q: gs:// takes endpoint, anonymous and prefix", name)
		}
	}
	ctx = context.WithoutCancel(ctx) // tokens are requested later, too
	client := &http.Client{Transport: bounded{transport(patience)}}
	o := []option.ClientOption{storage.WithJSONReads()}
	if q.Get("anonymous") == "true" || os.Getenv("STORAGE_EMULATOR_HOST") != "" {
		o = append(o, option.WithoutAuthentication())
	} else {
		credentials, err := gcp.DefaultCredentials(context.WithValue(ctx, oauth2.HTTPClient, client))
		if err != nil {
			return nil, err
		}
		client = &http.Client{Transport: &oauth2.Transport{Base: client.Transport, Source: credentials.TokenSource}}
	}
	if at := q.Get("endpoint"); at != "" {
		o = append(o, option.WithEndpoint(strings.TrimSuffix(at, "/")+"/storage/v1/"))
	}
	service, err := storage.NewClient(ctx, append(o, option.WithHTTPClient(client))...)
	if err != nil {
		return nil, err
	}
	// Writing twice is safe: objects do not change, or the last write counts.
	service.SetRetry(storage.WithPolicy(storage.RetryAlways), storage.WithMaxAttempts(attempts),
		storage.WithErrorFunc(func(err error) bool {
			return !errors.Is(err, errLast) && storage.ShouldRetry(err)
		}))
	return gcsblob.OpenBucket(ctx, nil, u.Host, &gcsblob.Options{Client: service})
}

// errLast says that a request has failed too often to be repeated.
var errLast = errors.New("given up")

// bounded limits the attempts of uploads, which the client counts but does not limit.
type bounded struct{ http.RoundTripper }

var counted = regexp.MustCompile(`gccl-attempt-count/(\d+)`)

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	attempt := counted.FindStringSubmatch(r.Header.Get("X-Goog-Api-Client"))
	if attempt == nil {
		return answer, err
	}
	switch n, _ := strconv.Atoi(attempt[1]); {
	case n < attempts:
		return answer, err
	case err != nil:
		return nil, fmt.Errorf("%w after %d attempts: %w", errLast, n, err)
	case answer.StatusCode >= http.StatusInternalServerError || answer.StatusCode == http.StatusTooManyRequests:
		return nil, errors.Join(fmt.Errorf("%w after %d attempts: %s", errLast, n, answer.Status), answer.Body.Close())
	}
	return answer, nil
}
