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
	"sync"
	"syscall"
	"testing"
	"time"
)

// bouncerPool is how many connections to the server a bouncer has: more than the ten transactions that F39 leaves
// open, each of which keeps one, plus those of handlers.
const bouncerPool = 24

// bouncer is a pgbouncer in transaction mode. If it ends by itself it is restarted, as a service manager would do.
type bouncer struct {
	t    *testing.T
	port int
	file string
	log  *os.File
	cred *syscall.Credential

	mu    sync.Mutex
	cmd   *exec.Cmd // nil while it should be down
	ended chan struct{}
}

// newBouncer starts a pgbouncer that writes its log into a folder.
func newBouncer(t *testing.T, dsn, keep string) *bouncer {
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
* = host=127.0.0.1 port=%s user=postgres pool_size=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 300
server_login_retry = 1
log_connections = 0
log_disconnections = 0
`, port, bouncerPool, b.port)
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
	if b.log, err = os.OpenFile(filepath.Join(keep, "pgbouncer.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY,
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.log.Close() })
	b.start()
	t.Cleanup(b.kill)
	return b
}

func (b *bouncer) addr() string { return fmt.Sprintf("127.0.0.1:%d", b.port) }

func (b *bouncer) start() {
	cmd, err := b.run()
	if err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan struct{})
	b.mu.Lock()
	b.cmd, b.ended = cmd, ended
	b.mu.Unlock()
	go func() {
		defer close(ended)
		for cmd != nil {
			cmd = b.after(cmd, cmd.Wait())
		}
	}()
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

func (b *bouncer) run() (*exec.Cmd, error) {
	cmd := exec.Command("pgbouncer", b.file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.cred, Setpgid: true}
	cmd.Stderr = b.log
	return cmd, cmd.Start()
}

// after restarts a pgbouncer that ended by itself. It returns nil if the old one was killed.
func (b *bouncer) after(cmd *exec.Cmd, how error) *exec.Cmd {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != cmd {
		return nil
	}
	b.t.Logf("pgbouncer ended by itself, and is started again: %v", how)
	next, err := b.run()
	if err != nil {
		b.t.Error(err)
		return nil
	}
	b.cmd = next
	return next
}

func (b *bouncer) kill() {
	b.mu.Lock()
	cmd := b.cmd
	b.cmd = nil
	b.mu.Unlock()
	cmd.Process.Kill()
	<-b.ended
}
