package place

import (
	"context"
	"net/http"
	"net/url"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

// openS3 opens an S3 bucket. Its parameters are those of gocloud.dev/blob/s3blob.
func openS3(ctx context.Context, u *url.URL, patience time.Duration) (*blob.Bucket, error) {
	parsed, err := new(s3blob.URLOpener).OpenBucketURL(ctx, u)
	if err != nil {
		return nil, err
	}
	defer parsed.Close()
	var client *s3.Client
	parsed.As(&client)
	o := client.Options()
	// The SDK would log this for objects written in parts. The archive has its own checksums.
	o.DisableLogOutputChecksumValidationSkipped = true
	o.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.DialContext = dial(patience)
	})
	q := u.Query()
	return s3blob.OpenBucket(ctx, s3.New(o), u.Host,
		&s3blob.Options{RequestChecksumCalculation: o.RequestChecksumCalculation,
			EncryptionType: types.ServerSideEncryption(q.Get("ssetype")), KMSEncryptionID: q.Get("kmskeyid")})
}
