// Package s3test starts an object store that speaks S3's protocol, for tests: SeaweedFS, as
// scripts/s3-deps installs it. The store can be killed and started again on its data, and what
// is between it and its clients can hold every byte back. It touches processes and files of its
// own, and nothing of Tusk.
package s3test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	bucket = "tusk"
	key    = "tusk-key"
	secret = "tusk-secret"
	most   = 30 * time.Second // for a start
)

// Server is a running object store with one bucket.
type Server struct {
	program, dir string
	ports        map[string]int // by their flags
	front        *front
	cmd          *exec.Cmd
}

// Start starts a server that the end of the test stops. Without SeaweedFS the test is skipped,
// or fails where all tests have to run.
func Start(t testing.TB) *Server {
	t.Helper()
	program, err := find()
	if err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("TUSK_TEST_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s, err := run(program, t.TempDir())
	if err != nil { // another took one of its ports, say
		s, err = run(program, t.TempDir())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	for name, value := range environment {
		t.Setenv(name, value)
	}
	return s
}

// environment has the credentials, as clients read them.
var environment = map[string]string{"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_EC2_METADATA_DISABLED": "true"}

// find returns the path of the server's program.
func find() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	program := filepath.Join(cache, "tusk-seaweedfs-4.48", "bin", "weed")
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("no object store: run scripts/s3-deps: %w", err)
	}
	return program, nil
}

// run starts a server whose data is in a folder.
func run(program, dir string) (*Server, error) {
	identity := fmt.Sprintf(`{"identities": [{"name": "tusk", "credentials": [{"accessKey": %q, "secretKey": %q}],
		"actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}`, key, secret)
	if err := os.WriteFile(filepath.Join(dir, "s3.json"), []byte(identity), 0o600); err != nil {
		return nil, err
	}
	taken, err := ports("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc")
	if err != nil {
		return nil, err
	}
	s := &Server{program: program, dir: dir, ports: taken}
	if s.front, err = newFront("127.0.0.1:" + strconv.Itoa(taken["s3.port"])); err != nil {
		return nil, err
	}
	if err := s.Again(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// ports finds free ports, all different. They are below those that the system gives to clients, so
// that nobody takes them while the server is down.
func ports(names ...string) (map[string]int, error) {
	found := map[string]int{}
	for tries := 0; len(found) < len(names); tries++ {
		port := 15_000 + rand.IntN(15_000)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil && tries < 100 {
			continue
		}
		if err != nil {
			return nil, err
		}
		defer l.Close() // when all are found
		found[names[len(found)]] = port
	}
	return found, nil
}

// URL is what the archive calls a part of the bucket.
func (s *Server) URL(prefix string) string {
	return "s3://" + bucket + "?region=us-east-1&use_path_style=true&endpoint=http://" + s.front.listener.Addr().String() + "&prefix=" + prefix
}

// Endpoint is host and port of the server, as clients reach it.
func (s *Server) Endpoint() string { return s.front.listener.Addr().String() }

// Bucket is the name of its bucket.
func (s *Server) Bucket() string { return bucket }

// Hold keeps all bytes of all connections back until it is called with false: nobody is told.
func (s *Server) Hold(on bool) { s.front.held.Store(on) }

// Kill kills the server and cuts its connections. Again starts it on its data.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
	s.front.cut()
}

// Again starts the server, and returns when it takes objects.
func (s *Server) Again() error {
	args := []string{"-logdir=" + s.dir, "server", "-dir=" + s.dir, "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", "-master.volumeSizeLimitMB=64",
		"-master.electionTimeout=1s", "-master.heartbeatInterval=200ms",
		"-volume.max=100", "-volume.minFreeSpace=1", "-filer", "-s3", "-s3.config=" + filepath.Join(s.dir, "s3.json"), "-s3.port.iceberg=0",
		"-s3.port.lance=0", "-filer.localSocket=" + filepath.Join(s.dir, "filer.sock"), "-s3.localSocket=" + filepath.Join(s.dir, "s3.sock")}
	for name, port := range s.ports {
		args = append(args, "-"+name+"="+strconv.Itoa(port))
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.Command(s.program, args...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, log, log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	return s.await()
}

// await makes the bucket and writes an object, as soon as the server lets it.
func (s *Server) await() error {
	client := s3.New(s3.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://" + s.Endpoint()), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(key, secret, ""), RetryMaxAttempts: 1})
	name := bucket
	for end := time.Now().Add(most); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name})
		var exists *types.BucketAlreadyExists
		if err == nil || errors.As(err, &exists) {
			_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: &name, Key: aws.String("ready"), Body: strings.NewReader("ready")})
		}
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			said, _ := os.ReadFile(s.log())
			return fmt.Errorf("the object store does not start: %w: %s", err, said[max(0, len(said)-2000):])
		}
	}
}

func (s *Server) log() string { return filepath.Join(s.dir, "server.log") }

func (s *Server) stop() {
	s.Kill()
	_ = s.front.listener.Close()
}
