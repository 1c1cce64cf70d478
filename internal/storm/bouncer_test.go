//go:build unix

package storm

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// bouncer is a pgbouncer in transaction mode.
type bouncer struct {
	t    *testing.T
	port int
	file string
	cred *syscall.Credential
	cmd  *exec.Cmd
}

func newBouncer(t *testing.T, dsn string) *bouncer {
	t.Helper()
	if _, err := exec.LookPath("pgbouncer"); err != nil {
		missingServer(t, "pgbouncer", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bouncer{t: t, port: l.Addr().(*net.TCPAddr).Port}
	l.Close()
	dir, err := os.MkdirTemp("", "tusk-bouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	_, port, _ := net.SplitHostPort(hostOf(t, dsn))
	config := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%s user=postgres pool_size=12
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 300
server_login_retry = 1
`, port, b.port)
	b.file = filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(b.file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		os.Chmod(dir, 0o755)
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.ParseUint(nobody.Uid, 10, 32)
		b.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	b.start()
	t.Cleanup(b.kill)
	return b
}

func (b *bouncer) addr() string { return fmt.Sprintf("127.0.0.1:%d", b.port) }

func (b *bouncer) start() {
	b.cmd = exec.Command("pgbouncer", b.file)
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.cred, Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", b.addr())
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("pgbouncer does not answer: %v", err)
		}
	}
}

func (b *bouncer) kill() {
	b.cmd.Process.Kill()
	b.cmd.Wait()
}
