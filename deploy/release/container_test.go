package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// lacksRights matches what container tools print on a machine that does not let them work.
var lacksRights = regexp.MustCompile(
	`(?i)not permitted|permission denied|not supported|cgroup|read-only file system|newuidmap|seccomp|no such device`)

// tools are buildah and podman with separate storage.
type tools struct{ *testing.T }

// refusal is what a tool printed when it failed.
type refusal string

func (r refusal) Error() string { return string(r) }

// run returns what a tool printed and, if it failed, its error message. Podman complains on a
// machine without systemd, but continues.
func (t tools) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+os.TempDir())
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%w", name, strings.Join(args, " "), err, refusal(said.String()))
	}
	return strings.TrimSpace(string(out)), err
}

// must runs a step that is possible only on a machine that allows containers.
func (t tools) must(name string, args ...string) string {
	t.Helper()
	out, err := t.run(name, args...)
	var said refusal
	if errors.As(err, &said) && lacksRights.MatchString(string(said)) {
		t.Skipf("this machine does not let containers be: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Buildah builds the last stage of the Dockerfile, from the binary of the release and without
// a registry. It runs in a container of podman and runc.
func TestTheImageIsBuiltAndRunsInAContainer(t *testing.T) {
	needRoot(t)
	for _, tool := range []string{"buildah", "podman", "runc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: apt-get install buildah podman runc", tool)
		}
	}
	do := tools{t}
	storage, err := os.MkdirTemp("", "c") // podman needs a short path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(storage)
	own := []string{"--root", filepath.Join(storage, "root"), "--runroot", filepath.Join(storage, "run"),
		"--storage-driver", "vfs"}
	podman := func(args ...string) []string {
		return append(append(own[:len(own):len(own)], "--runtime", "runc", "--cgroup-manager", "cgroupfs"), args...)
	}
	do.must("buildah", append(own[:len(own):len(own)], "bud", "--isolation", "chroot", "--format", "docker", "-t", "tusk",
		buildContext(t))...)
	limits := []string{"--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"}
	start := func(args ...string) []string { return podman(append(append([]string{"run"}, limits...), args...)...) }

	if out := do.must("podman", start("--rm", "--no-healthcheck", "tusk")...); !strings.Contains(out, "tusk enqueue") &&
		!strings.Contains(out, "Usage") {
		t.Errorf("without a command it says:\n%s", out)
	}
	data := filepath.Join(storage, "data")
	if err := errors.Join(os.Mkdir(data, 0o700), os.Chown(data, readDockerfile(t).user, -1)); err != nil {
		t.Fatal(err)
	}
	volume := []string{"-v", data + ":/data", "-e", "TUSK_DATABASE_URL=sqlite:/data/tusk.db"}
	sure := func(args ...string) string {
		t.Helper()
		out, err := do.run("podman", args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	sure(start(append(volume, "--rm", "--no-healthcheck", "tusk", "migrate", "up")...)...)
	sure(start(append(volume, "-d", "--name", "serve", "--health-interval", "disable", "tusk", "serve")...)...)
	defer func() { _, _ = do.run("podman", podman("rm", "-f", "-t", "0", "serve")...) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := do.run("podman", podman("exec", "serve", "/tusk", "health", "--ready")...)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready after a minute: %v", err)
		}
	}
	if _, err := do.run("podman", podman("healthcheck", "run", "serve")...); err != nil {
		t.Errorf("the image's health check: %v", err)
	}
	if out, err := do.run("podman", podman("exec", "serve", "sh", "-c", "true")...); err == nil {
		t.Errorf("there is a shell in it: %s", out)
	}
	if out := sure(podman("top", "serve", "huser")...); !strings.Contains(out, "65532") {
		t.Errorf("it runs as %s", out)
	}
	sure(podman("stop", "-t", "40", "serve")...)
	if out := sure(podman("inspect", "--format", "{{.State.ExitCode}}", "serve")...); out != "0" {
		t.Errorf("it ended with %s when it was stopped", out)
	}
}

// buildContext makes a folder with a Dockerfile whose first stage has the binary of the
// release instead of a compiler, and whose last stage is the image's.
func buildContext(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, last, found := strings.Cut(string(text), "FROM scratch\n")
	if !found {
		t.Fatal("the last stage of the Dockerfile does not start from scratch")
	}
	dir := t.TempDir()
	run(t, "tar", "-xzf", filepath.Join(releaseOf(t), "tusk_0.1.0_linux_"+runtime.GOARCH+".tar.gz"), "-C", dir,
		"--strip-components=1")
	certificates, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		certificates = nil // this machine has none
	}
	err = errors.Join(os.MkdirAll(filepath.Join(dir, "stage/out/root/tmp"), 0o755),
		os.Chmod(filepath.Join(dir, "stage/out/root/tmp"), 0o777|os.ModeSticky),
		os.MkdirAll(filepath.Join(dir, "stage/etc/ssl/certs"), 0o755),
		os.Rename(filepath.Join(dir, "tusk"), filepath.Join(dir, "stage/out/tusk")),
		os.WriteFile(filepath.Join(dir, "stage/etc/ssl/certs/ca-certificates.crt"), certificates, 0o644),
		os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch AS build\nCOPY stage /\n\nFROM scratch\n"+last),
			0o644))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
