package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// made is a release for this machine's system. It is made once for all tests.
var made = sync.OnceValues(func() (string, error) {
	out, err := os.MkdirTemp("", "tusk-release-")
	if err != nil {
		return "", err
	}
	r := release{root: "../..", out: out, version: "v0.1.0", systems: []string{"linux/" + runtime.GOARCH}}
	return out, r.make(context.Background())
})

func TestMain(m *testing.M) {
	code := m.Run()
	if out, err := made(); err == nil {
		os.RemoveAll(out)
	}
	os.Exit(code)
}

func releaseOf(t *testing.T) string {
	t.Helper()
	out, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// run runs a command and fails the test if it fails.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestArchivesHoldTheBinaryAndItsPapers(t *testing.T) {
	out := releaseOf(t)
	name := "tusk_0.1.0_linux_" + runtime.GOARCH
	file, err := os.Open(filepath.Join(out, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]int64{}
	for members := tar.NewReader(packed); ; {
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[strings.TrimPrefix(header.Name, name+"/")] = header.Mode
	}
	for want, mode := range map[string]int64{"tusk": 0o755, "LICENSE": 0o644, "man/tusk-work.1": 0o644,
		"completions/tusk.bash": 0o644} {
		if modes[want] != mode {
			t.Errorf("%s has mode %o, want %o", want, modes[want], mode)
		}
	}
}

func TestTheArchiveForWindowsIsAZip(t *testing.T) {
	out := t.TempDir()
	r := release{root: "../..", out: out}
	binary := filepath.Join(out, "tusk.exe")
	if err := os.WriteFile(binary, []byte("MZ"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.archive("tusk_windows", binary, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(out, "tusk_windows.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if !slices.ContainsFunc(archive.File, func(f *zip.File) bool { return f.Name == "tusk_windows/tusk.exe" }) {
		t.Error("the archive for Windows has no tusk.exe")
	}
}

func TestChecksumsHold(t *testing.T) {
	check := exec.Command("sha256sum", "--strict", "-c", "SHA256SUMS")
	check.Dir = releaseOf(t)
	out, err := check.CombinedOutput()
	if err != nil || strings.Count(string(out), ": OK") != 3 { // an archive, a bill and a package
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTheBillOfMaterialsNamesEveryModule(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(releaseOf(t), "tusk_0.1.0_linux_"+runtime.GOARCH+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		BomFormat  string
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"std", "github.com/jackc/pgx/v5", "modernc.org/sqlite"} {
		found := slices.ContainsFunc(bill.Components, func(c struct{ Name, Version, Purl string }) bool {
			return c.Name == want && c.Version != "" && strings.HasPrefix(c.Purl, "pkg:golang/"+want+"@")
		})
		if !found || bill.BomFormat != "CycloneDX" {
			t.Errorf("%s is not in the bill", want)
		}
	}
}

// The package is installed into a separate root that contains only what its script needs.
// Then the installed binary runs there.
func TestThePackageInstallsIntoAFreshRoot(t *testing.T) {
	needRoot(t)
	out, root := releaseOf(t), t.TempDir()
	for _, folder := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	provide(t, root, "/bin/sh", "/bin/chmod")
	package_ := filepath.Join(out, "tusk_0.1.0_"+runtime.GOARCH+".deb")
	run(t, "dpkg", "--root="+root, "--force-depends", "-i", package_)
	if status := run(t, "dpkg", "--root="+root, "-s", "tusk"); !strings.Contains(status, "Status: install ok installed") {
		t.Errorf("dpkg says:\n%s", status)
	}
	if said := run(t, "chroot", root, "/usr/bin/tusk", "version", "--json"); !strings.Contains(said, `"engines"`) {
		t.Errorf("the installed binary says %s", said)
	}
	// The commands of docs/deploy.md.
	run(t, "chroot", root, "/bin/sh", "-c",
		`cd /tmp && echo "TUSK_DATABASE_URL='sqlite:/tmp/the.db'" >> /etc/tusk/environment &&
		set -a && . /etc/tusk/environment && tusk migrate up`)
	if _, err := os.Stat(filepath.Join(root, "tmp/the.db")); err != nil {
		t.Errorf("the schema went into another database: %v", err)
	}
	if info, err := os.Stat(filepath.Join(root, "etc/tusk/environment")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("/etc/tusk/environment: %v, %v", info, err)
	}
	for _, want := range []string{"usr/share/man/man1/tusk-work.1", "usr/share/bash-completion/completions/tusk",
		"usr/lib/systemd/system/tusk-serve.service", "usr/lib/sysusers.d/tusk.conf"} {
		if _, err := os.Stat(filepath.Join(root, want)); err != nil {
			t.Error(err)
		}
	}
	run(t, "dpkg", "--root="+root, "-P", "tusk")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/tusk")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the package was purged: %v", err)
	}
}

// provide copies programs of this machine, and the libraries that they need, into a root.
func provide(t *testing.T, root string, programs ...string) {
	t.Helper()
	libraries := regexp.MustCompile(`(/[^ ]+) \(0x`)
	for _, program := range programs {
		for _, found := range libraries.FindAllStringSubmatch(run(t, "ldd", program), -1) {
			copyInto(t, root, found[1])
		}
		copyInto(t, root, program)
	}
}

func copyInto(t *testing.T, root, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("it has to be root to change its root")
	}
	t.Skip("it has to be root to change its root")
}

// The units are verified by systemd itself if that is installed.
func TestUnitsAreSound(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	folder := t.TempDir()
	for _, name := range []string{"tusk-serve.service", "tusk-work@.service"} {
		unit, err := os.ReadFile(filepath.Join("../systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(unit), "/usr/bin/tusk", "/bin/true") // which exists
		text = regexp.MustCompile(`(?m)^(User|Group)=tusk$`).ReplaceAllString(text, "$1=root")
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(folder, "tusk-serve.service"),
		filepath.Join(folder, "tusk-work@default.service")).CombinedOutput()
	if err != nil && strings.Contains(string(out), "Failed to") && !strings.Contains(string(out), "tusk-") {
		t.Skipf("systemd-analyze cannot work here: %s", out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "tusk-") {
			t.Errorf("systemd-analyze: %s", line)
		}
	}
}

// The test makes and runs the image's root as the last stage of the Dockerfile says.
func TestTheImageRunsWithoutAShellOrRoot(t *testing.T) {
	needRoot(t)
	image := readDockerfile(t)
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	unpacked := t.TempDir()
	run(t, "tar", "-xzf", filepath.Join(releaseOf(t), "tusk_0.1.0_linux_"+runtime.GOARCH+".tar.gz"), "-C", unpacked,
		"--strip-components=1")
	for from, to := range image.copies {
		if from == "/out/root" { // it has only the folder for temporary files
			tmp := filepath.Join(root, to, "tmp")
			if err := errors.Join(os.Mkdir(tmp, 0o755), os.Chmod(tmp, 0o777|os.ModeSticky)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		source := from
		if strings.HasPrefix(from, "/out/") {
			source = filepath.Join(unpacked, strings.TrimPrefix(from, "/out/"))
		} else if _, err := os.Stat(from); err != nil {
			continue // this machine has no certificates
		}
		content, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(to)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, to), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(root, "data") // in place of a volume
	if err := errors.Join(os.Mkdir(data, 0o700), os.Chown(data, image.user, image.user)); err != nil {
		t.Fatal(err)
	}
	inside := func(args ...string) *exec.Cmd {
		cmd := exec.Command(image.entrypoint[0], append(slices.Clone(image.entrypoint[1:]), args...)...)
		cmd.Dir, cmd.Env = "/", []string{"TUSK_DATABASE_URL=sqlite:/data/tusk.db"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(image.user),
			Gid: uint32(image.user)}}
		return cmd
	}
	if out, err := inside("migrate", "up").CombinedOutput(); err != nil {
		t.Fatalf("migrate up: %v\n%s", err, out)
	}
	address := freeAddress(t)
	serve := inside("serve", "--addr", address, "--archive", "file:///data/archive")
	var said strings.Builder
	serve.Stderr = &said
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { serve.Process.Kill(); serve.Wait() }()
	health := func(more ...string) *exec.Cmd {
		return inside(append(slices.Clone(image.health[1:]), append(more, "--url", "http://"+address)...)...)
	}
	for deadline := time.Now().Add(time.Minute); health("--ready").Run() != nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not ready after a minute; it said:\n%s", said.String())
		}
	}
	if out, err := health().CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("the health check: %v\n%s", err, out)
	}
	if answer, err := http.Get("http://" + address + "/login"); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("the login page: %v, %v", answer, err)
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := serve.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, said.String())
	}
	if out, err := health().CombinedOutput(); err == nil {
		t.Errorf("the health check of a server that is gone says %s", out)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
