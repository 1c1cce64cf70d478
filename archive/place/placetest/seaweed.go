package placetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// seaweed is SeaweedFS, which speaks S3's protocol.
type seaweed struct{}

const (
	s3Key    = "tusk-key"
	s3Secret = "tusk-secret"
)

func (seaweed) install(cache string) (string, string) {
	return filepath.Join(cache, "tusk-seaweedfs-4.48", "bin", "weed"), "scripts/s3-deps"
}

func (seaweed) ports() []string {
	return []string{"s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc",
		"filer.port", "filer.port.grpc"}
}

func (seaweed) command(program, dir, _ string, ports map[string]int) *exec.Cmd {
	identity := fmt.Sprintf(`{"identities": [{"name": "tusk", "credentials": [{"accessKey": %q, "secretKey": %q}],
		"actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}`, s3Key, s3Secret)
	config := filepath.Join(dir, "s3.json")
	_ = os.WriteFile(config, []byte(identity), 0o600) // without it the server lets nobody in
	args := []string{"-logdir=" + dir, "server", "-dir=" + dir, "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
		"-master.telemetry=false", "-master.volumeSizeLimitMB=64",
		"-master.electionTimeout=1s", "-master.heartbeatInterval=200ms",
		"-volume.max=100", "-volume.minFreeSpace=1", "-filer", "-s3", "-s3.config=" + config, "-s3.port.iceberg=0",
		"-s3.port.lance=0", "-filer.localSocket=" + filepath.Join(dir, "filer.sock"),
		"-s3.localSocket=" + filepath.Join(dir, "s3.sock")}
	for name, port := range ports {
		args = append(args, "-"+name+"="+strconv.Itoa(port))
	}
	return exec.Command(program, args...)
}

func (seaweed) ready(address string) error {
	client := s3.New(s3.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://" + address), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s3Key, s3Secret, ""), RetryMaxAttempts: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(bucket)})
	var exists *types.BucketAlreadyExists
	var owned *types.BucketAlreadyOwnedByYou // an earlier try was too slow to hear that it succeeded
	if err == nil || errors.As(err, &exists) || errors.As(err, &owned) {
		_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String("ready"),
			Body: strings.NewReader("ready")})
	}
	return err
}

func (seaweed) environment() map[string]string {
	return map[string]string{"AWS_ACCESS_KEY_ID": s3Key, "AWS_SECRET_ACCESS_KEY": s3Secret,
		"AWS_EC2_METADATA_DISABLED": "true"}
}

func (seaweed) location(address, prefix string) string {
	return "s3://" + bucket + "?region=us-east-1&use_path_style=true&endpoint=http://" + address + "&prefix=" + prefix
}

func (seaweed) pyarrow(address, prefix string) string {
	return fmt.Sprintf(`fs.S3FileSystem(endpoint_override=%q, scheme="http", region="us-east-1"), %q`, address,
		bucket+"/"+prefix)
}

func (seaweed) durable() bool { return true }
