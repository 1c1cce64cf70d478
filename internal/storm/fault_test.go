//go:build unix

package storm

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tuskqueue/tusk"
)

// fault is one thing that goes wrong, and is right again when strike returns.
type fault struct {
	code   string // in the table of faults in docs/reliability.md
	name   string
	on     string // grounds, separated by spaces; empty: all
	weight int
	strike func(s *storm) error
}

const (
	servers    = "postgres pgbouncer mysql"
	postgreses = "postgres pgbouncer"
)

var faults = []fault{
	{"F1", "kill a worker", "", 24, func(s *storm) error { return s.kill(s.any("worker")) }},
	{"F1", "kill a producer", "", 4, func(s *storm) error { return s.kill(s.any("producer")) }},
	{"F2", "pause a worker for longer than its lease", "", 3, func(s *storm) error { return s.pause(s.any("worker")) }},
	{"F3", "stop a worker", "", 4, func(s *storm) error { return s.stop(s.any("worker"), 1) }},
	{"F3", "stop a worker twice", "", 1, func(s *storm) error { return s.stop(s.any("worker"), 2) }},
	{"F3", "stop a worker while it starts", "", 1, func(s *storm) error { return s.stop(s.fleet.start(s.worker()), 1) }},
	{"F5", "kill the database server", servers, 3, killServer},
	{"F5", "kill backends", postgreses, 5, killBackends},
	{"F6", "cut the power of the disk", "", 2, cutPower},
	{"F7", "terminate backends", servers, 8, func(s *storm) error {
		return endSessions(s, "end of a session", "select pg_terminate_backend($1)", "kill %d")
	}},
	{"F10", "reset all connections", servers, 3, func(s *storm) error { s.ground.proxy.cut(); return nil }},
	{"F10", "swallow everything for longer than a lease", servers, 1, func(s *storm) error { return s.clog(stormLease + stormLease/2) }},
	{"F10", "refuse and reset by turns", servers, 2, flap},
	{"F10", "cut a worker off for longer than its lease", servers, 2, func(s *storm) error { return s.cutOff(s.any("worker")) }},
	{"F11", "let nobody hear notifications", postgreses, 1, deafen},
	{"F12", "slow the network down", servers, 2, slowDown},
	{"F12", "one byte at a time", servers, 1, slice},
	{"F13", "lose answers", servers, 6, loseAnswers},
	{"F15", "make the database read-only", postgreses, 1, readOnly},
	{"F16", "set the server's clock back, and kill the leader", servers, 1, setBack},
	{"F16", "set the server's clock forward", servers, 1, setForward},
	{"F17", "start a worker whose clock is wrong", servers, 2, startWithWrongClock},
	{"F18", "take all connections", servers, 1, takeConnections},
	{"F19", "restart pgbouncer", "pgbouncer", 6, restartBouncer},
	{"F20", "cancel statements", servers, 6, func(s *storm) error {
		return endSessions(s, "cancel of a statement", "select pg_cancel_backend($1)", "kill query %d")
	}},
	{"F20", "hold the write lock", "sqlite", 2, holdWriteLock},
	{"F21", "pin the horizon", servers, 1, pinHorizon},
	{"F22", "lock a table", servers, 2, lockTable},
	{"F24", "a task ends its process", "", 4, func(s *storm) error {
		return s.enqueueDeadly([]string{doExit, doOverflow, doStarve}[s.random.IntN(3)])
	}},
	{"F24", "a task ends every process that runs it", "", 1, func(s *storm) error { return s.enqueueDeadly(doKiller) }},
	{"F24", "handlers ignore that their time is over", "", 1, func(s *storm) error { return s.enqueueOne(doDeaf) }},
	{"F29", "start a worker that looks like another", "", 2, lookAlike},
	{"F30", "kill the leader", "", 4, func(s *storm) error { return s.kill(s.leader()) }},
	{"F30", "pause the leader for longer than its term", "", 2, func(s *storm) error { return s.pause(s.leader()) }},
	{"F30", "cut the leader off for longer than its term", servers, 2, func(s *storm) error { return s.cutOff(s.leader()) }},
	{"F36", "clog all connections and free them one by one", servers, 2, swizzle},
	{"F36", "two at a time", "", 3, two},
}

// findFault returns the first fault of a code.
func findFault(code string) *fault {
	for i := range faults {
		if faults[i].code == code {
			return &faults[i]
		}
	}
	panic("no fault has the code " + code)
}

func (f *fault) rages(ground string) bool {
	return f.on == "" || strings.Contains(" "+f.on+" ", " "+ground+" ")
}

// kill kills a process and puts another into its place.
func (s *storm) kill(p *process) error {
	s.fleet.kill(p)
	s.count("kill of a " + p.role.name)
	s.fleet.start(s.role(p.role.name))
	return nil
}

// pause stops a process for longer than its lease and lets it go on.
func (s *storm) pause(p *process) error {
	p.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(stormLease + stormLease/2)
	p.cmd.Process.Signal(syscall.SIGCONT)
	s.count("pause")
	return nil
}

// stop asks a worker to end and expects that it does, in good order.
func (s *storm) stop(p *process, times int) error {
	for range times {
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	s.count("stop")
	select {
	case <-p.ended:
	case <-time.After(40 * time.Second):
		s.violation("F3", "a worker that was told to stop goes on: %s", p.tail())
		s.fleet.kill(p)
	}
	s.fleet.gone(p)
	s.fleet.start(s.worker())
	return nil
}

// crash marks in the history when the server lost what was not yet written through.
const crash = "crash"

func killServer(s *storm) error {
	s.count("kill of the server")
	s.log.write(event{Op: opFault, Text: crash})
	defer s.log.write(event{Op: opCalm, Text: crash})
	return s.ground.killServer(func() error { return nil })
}

// killBackends kills some backends, one after another.
func killBackends(s *storm) error {
	for range 3 + s.random.IntN(3) {
		if err := killBackend(s); err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond) // for the others to be taken down
	}
	return nil
}

// killBackend kills one backend by its process, which makes PostgreSQL take all
// others down and recover.
func killBackend(s *storm) error {
	s.log.write(event{Op: opFault, Text: crash})
	defer s.log.write(event{Op: opCalm, Text: crash})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // until it has recovered from the last one
		pid, err := s.session()
		if pid != 0 && err == nil && syscall.Kill(int(pid), syscall.SIGKILL) == nil {
			s.count("kill of a backend")
			return nil
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// cutPower takes the power from the disk, and so from whoever keeps a database on it.
func cutPower(s *storm) error {
	s.count("power cut")
	s.log.write(event{Op: opFault, Text: crash})
	defer s.log.write(event{Op: opCalm, Text: crash})
	if err := s.ground.disk.cut(); err != nil {
		return err
	}
	if s.ground.engine != "sqlite" {
		return s.ground.killServer(s.ground.disk.restore)
	}
	s.replace()
	var roles []role
	for _, p := range slices.Clone(s.fleet.living) {
		roles = append(roles, p.role)
		s.fleet.kill(p)
	}
	s.close()
	s.ground.admin.Close()
	if err := s.ground.disk.restore(); err != nil {
		return err
	}
	if err := s.connect(s.t.Context()); err != nil {
		return err
	}
	for _, r := range roles {
		s.fleet.start(s.role(r.name))
	}
	var err error
	s.ground.admin, err = engines[s.ground.engine].pool(s.ground.dsn)
	return err
}

// cutOff lets nothing of one process pass for longer than its lease.
func (s *storm) cutOff(p *process) error {
	p.door.clogged.Store(true)
	time.Sleep(stormLease + stormLease/2)
	p.door.clogged.Store(false)
	s.count("cut off")
	return nil
}

// mostForward is how often the clock goes forward by an hour: what has ended is kept
// for longer than that.
const mostForward = 8

// setForward lets an hour pass at once: leases and terms are over, what waits is due,
// and the schedule has missed an hour.
func setForward(s *storm) error {
	if s.ground.clock.get() >= mostForward*time.Hour {
		return setBack(s)
	}
	s.count("clock forward")
	return s.setClock(s.ground.clock.get() + time.Hour)
}

// setBack sets the clock back for longer than leases last, and forward again. Whoever
// leads dies, and a worker: both are replaced as soon as ever.
func setBack(s *storm) error {
	s.count("clock back")
	was := s.ground.clock.get()
	if err := s.setClock(was - 10*time.Minute); err != nil {
		return err
	}
	leader := s.leader()
	began := instant()
	s.kill(leader)
	for end := time.Now().Add(15 * time.Second); s.ledSince(began) == nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.violation("F16", "nobody leads %v after the clock was set back and the leader was killed", 15*time.Second)
			break
		}
	}
	return s.setClock(was)
}

// ledSince returns a worker that wrote after an instant that it leads.
func (s *storm) ledSince(at int64) *process {
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	for _, p := range s.fleet.living {
		if p.role.name == "worker" && lastLed(p.history()) > at {
			return p
		}
	}
	return nil
}

// setClock sets the server's clock and waits until the server says so.
func (s *storm) setClock(ahead time.Duration) error {
	s.log.write(event{Op: opClock, Asked: int64(ahead)})
	defer s.log.write(event{Op: opClock, Asked: int64(ahead)})
	if err := s.ground.clock.set(ahead); err != nil {
		return err
	}
	ask := "select extract(epoch from clock_timestamp())::float8"
	if s.ground.my != nil {
		ask = "select cast(unix_timestamp(sysdate(6)) as double)"
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		var now float64
		err := s.ground.admin.QueryRowContext(ctx, ask).Scan(&now)
		cancel()
		says := time.Duration(now*1e9 - float64(instant()))
		if err == nil && (says-ahead).Abs() < 5*time.Second {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the server's clock is %v ahead, not %v: %w", says, ahead, err)
		}
	}
}

// startWithWrongClock puts a worker whose clock is a day ahead or behind into the
// place of another.
func startWithWrongClock(s *storm) error {
	s.fleet.kill(s.any("worker"))
	s.count("kill of a worker")
	r := s.worker()
	r.program, r.env = s.wrong, []string{wrongBy + "=" + []string{"ahead", "behind"}[s.random.IntN(2)]}
	s.fleet.start(r)
	return nil
}

func (s *storm) enqueueOne(kind string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	_, err := s.client.Enqueue(ctx, kindOf{kind: kind}, &tusk.Options{Queue: queueOpen, Priority: -1, Timeout: time.Second, Backoff: tusk.ConstantBackoff(100 * time.Millisecond)})
	return err
}

// enqueueDeadly enqueues a task that ends its process, and awaits that.
func (s *storm) enqueueDeadly(kind string) error {
	if err := s.enqueueOne(kind); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); s.replace() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("no worker has run the task of kind %s within 10s", kind)
		}
	}
	return nil
}

// session picks a connection of the storm's processes; 0: there is none.
func (s *storm) session() (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	pids, err := s.ground.sessions(ctx)
	if err != nil || len(pids) == 0 {
		return 0, err
	}
	return pids[s.random.IntN(len(pids))], nil
}

// endSessions ends a few sessions, or what they are doing.
func endSessions(s *storm, what, postgres, mysql string) error {
	for range 1 + s.random.IntN(6) {
		pid, err := s.session()
		if err != nil || pid == 0 {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if s.ground.my != nil {
			s.ground.exec(ctx, fmt.Sprintf(mysql, pid)) // it may be gone
		} else {
			s.ground.exec(ctx, postgres, pid)
		}
		cancel()
		s.count(what)
		time.Sleep(time.Duration(s.random.IntN(100)) * time.Millisecond)
	}
	return nil
}

func (s *storm) clog(d time.Duration) error {
	all := s.ground.proxy.all()
	for _, w := range all {
		w.clogged.Store(true)
	}
	time.Sleep(d)
	for _, w := range all {
		w.clogged.Store(false)
	}
	return nil
}

func flap(s *storm) error {
	for range 4 {
		s.ground.proxy.refuse.Store(true)
		s.ground.proxy.cut()
		time.Sleep(300 * time.Millisecond)
		s.ground.proxy.refuse.Store(false)
		time.Sleep(300 * time.Millisecond)
	}
	return nil
}

func deafen(s *storm) error {
	s.ground.proxy.deaf.Store(true)
	time.Sleep(4 * time.Second)
	s.ground.proxy.deaf.Store(false)
	return nil
}

func slowDown(s *storm) error {
	s.ground.proxy.latency.Store(int64([]time.Duration{10, 50, 200}[s.random.IntN(3)] * time.Millisecond))
	time.Sleep(3 * time.Second)
	s.ground.proxy.latency.Store(0)
	return nil
}

func slice(s *storm) error {
	s.ground.proxy.sliced.Store(true)
	time.Sleep(2 * time.Second)
	s.ground.proxy.sliced.Store(false)
	return nil
}

func loseAnswers(s *storm) error {
	for range 1 + s.random.IntN(8) {
		s.ground.proxy.loseNext.Add(1)
		s.count("lost answer")
		time.Sleep(time.Duration(s.random.IntN(150)) * time.Millisecond)
	}
	return nil
}

func readOnly(s *storm) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.ground.exec(ctx, "alter system set default_transaction_read_only = on"); err != nil {
		return err
	}
	if err := s.ground.exec(ctx, "select pg_reload_conf()"); err != nil {
		return err
	}
	time.Sleep(time.Second)
	return writable(ctx, s)
}

// writable ends it, on a connection that must not begin read-only itself.
func writable(ctx context.Context, s *storm) error {
	c, err := s.ground.admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, statement := range []string{"set default_transaction_read_only = off", "alter system reset default_transaction_read_only",
		"select pg_reload_conf()", "reset default_transaction_read_only"} {
		if _, err := c.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// takeConnections holds all connections that the server has left.
func takeConnections(s *storm) error {
	db, err := engines[s.ground.engine].pool(s.ground.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(0)
	db.SetMaxIdleConns(600)
	var held []*sql.Conn
	for range 600 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		c, err := db.Conn(ctx)
		cancel()
		if err != nil {
			break
		}
		held = append(held, c)
	}
	if pids, err := s.ground.sessions(context.Background()); err == nil { // make the processes feel it
		for range min(6, len(pids)) {
			s.ground.proxy.cut()
			time.Sleep(200 * time.Millisecond)
		}
	}
	time.Sleep(time.Second)
	for _, c := range held {
		c.Close()
	}
	return nil
}

func restartBouncer(s *storm) error {
	s.count("restart of pgbouncer")
	s.ground.bouncer.kill()
	time.Sleep(time.Duration(s.random.IntN(500)) * time.Millisecond)
	s.ground.bouncer.start()
	return nil
}

func holdWriteLock(s *storm) error {
	tx, err := s.ground.admin.Begin() // an immediate one
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(500+s.random.IntN(1500)) * time.Millisecond)
	return tx.Rollback()
}

// pinHorizon holds a transaction open that keeps vacuum and purge from working,
// while the storm goes on.
func pinHorizon(s *storm) error {
	tx, err := s.ground.admin.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return err
	}
	if _, err := tx.Exec("select count(*) from storm_effect"); err != nil {
		tx.Rollback()
		return err
	}
	s.later(10*time.Second, func() { tx.Rollback() })
	return nil
}

// lockTable holds one of Tusk's tables for longer than a lease.
func lockTable(s *storm) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	find := "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = 'tusk' order by 1"
	if s.ground.my != nil {
		find = "select table_name from information_schema.tables where table_schema = database() and table_name like 'tusk%' and table_type = 'BASE TABLE' order by 1"
	}
	rows, err := s.ground.admin.QueryContext(ctx, find)
	if err != nil {
		return err
	}
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		tables = append(tables, name)
	}
	if err := rows.Err(); err != nil || len(tables) == 0 {
		return fmt.Errorf("no tables to lock: %w", err)
	}
	c, err := s.ground.admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	begin, lock, end := "begin", "lock table %s in access exclusive mode", "rollback"
	if s.ground.my != nil {
		begin, lock, end = "set lock_wait_timeout = 3", "lock tables %s write", "unlock tables"
	}
	if _, err = c.ExecContext(ctx, begin); err == nil {
		if _, err = c.ExecContext(ctx, fmt.Sprintf(lock, tables[s.random.IntN(len(tables))])); err == nil {
			time.Sleep(stormLease + stormLease/4)
		}
	}
	_, undo := c.ExecContext(ctx, end)
	if err == nil {
		err = undo
	}
	return err
}

// lookAlike puts a worker into the place of another that has the same process id
// and host name, where namespaces can be made.
func lookAlike(s *storm) error {
	s.fleet.kill(s.any("worker"))
	s.count("kill of a worker")
	r := s.worker()
	r.alike = true
	s.fleet.start(r)
	return nil
}

// swizzle clogs all connections and frees them one by one in another order.
func swizzle(s *storm) error {
	all := s.ground.proxy.all()
	s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, w := range all {
		w.clogged.Store(true)
		time.Sleep(10 * time.Millisecond)
	}
	s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, w := range all {
		w.clogged.Store(false)
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// two lets a second fault strike while the first one does.
func two(s *storm) error {
	first, second := s.draw(), s.draw()
	alone := []string{"F3", "F6", "F16", "F36"} // these watch for what the other one does
	if first.name == second.name || slices.Contains(alone, first.code) || slices.Contains(alone, second.code) {
		return nil
	}
	s.log.write(event{Op: opFault, Text: first.name + " and " + second.name})
	ended := make(chan error, 1)
	go func() { ended <- first.strike(s) }()
	err := second.strike(s)
	if other := <-ended; err == nil {
		err = other
	}
	return err
}
