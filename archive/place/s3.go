package place

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

// openS3 opens a bucket. Parameters are those of gocloud.dev/blob/s3blob. Its connections end
// when no byte moves on them for as long as patience, so that a server that stalls is noticed
// like one that is gone.
func openS3(ctx context.Context, u *url.URL, patience time.Duration) (*blob.Bucket, error) {
	q := u.Query()
	prefix := q.Get("prefix")
	q.Del("prefix")
	plain := *u
	plain.RawQuery = q.Encode()
	parsed, err := new(s3blob.URLOpener).OpenBucketURL(ctx, &plain)
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	defer parsed.Close()
	var client *s3.Client
	parsed.As(&client)
	o := client.Options()
	o.DisableLogOutputChecksumValidationSkipped = true // of what was written in parts; the archive has sums of its own
	dialer := &net.Dialer{Timeout: patience, KeepAlive: patience}
	o.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &impatient{c, patience}, nil
		}
	})
	b, err := s3blob.OpenBucket(ctx, s3.New(o), u.Host, &s3blob.Options{RequestChecksumCalculation: o.RequestChecksumCalculation,
		EncryptionType: types.ServerSideEncryption(q.Get("ssetype")), KMSEncryptionID: q.Get("kmskeyid")})
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	if prefix != "" {
		return blob.PrefixedBucket(b, strings.TrimSuffix(prefix, "/")+"/"), nil
	}
	return b, nil
}

// impatient is a connection on which something has to move.
type impatient struct {
	net.Conn
	patience time.Duration
}

// Read implements net.Conn.
func (c *impatient) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements net.Conn. A reader that waits meanwhile has to wait as long from here.
func (c *impatient) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
