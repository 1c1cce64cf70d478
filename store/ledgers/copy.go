package ledgers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// copyAll copies ledgers to a server, one after the other.
func (s *Store) copyAll(
	ctx context.Context, seen *looked, target *server, numbers []int,
) (stood time.Duration, err error) {
	dump, err := tool("pg_dump")
	if err != nil {
		return 0, err
	}
	psql, err := tool("psql")
	if err != nil {
		return 0, err
	}
	for _, no := range numbers {
		if err := seen.on[no][0].fits(ctx, target); err != nil {
			return 0, fmt.Errorf("ledger %d: %w", no, err)
		}
	}
	for _, no := range numbers {
		one := seen.on[no][0]
		if err := driveUp(ctx, one.at, target); err != nil {
			return stood, fmt.Errorf("ledger %d: %w", no, err)
		}
		began := time.Now()
		if err := one.fence(ctx); err != nil {
			return stood, fmt.Errorf("ledger %d: %w", no, err)
		}
		one.text += fencedEnd
		err := one.copyTo(ctx, target, dump, psql)
		if err == nil {
			err = s.Open(ctx, target.name, no)
		}
		if err != nil { // open it where it was
			back := context.WithoutCancel(ctx)
			half := schema{name: one.name, text: one.text, at: target}
			return stood, errors.Join(fmt.Errorf("ledger %d: %w", no, err), half.drop(back), s.Open(back, one.at.name, no))
		}
		stood = max(stood, time.Since(began))
	}
	return stood, nil
}

// fits fails if the target has a schema that a copy would need the name of.
func (one schema) fits(ctx context.Context, target *server) error {
	var name string
	err := target.pool.QueryRow(ctx, "select coalesce(min(nspname::text), '') from pg_catalog.pg_namespace "+
		"where nspname = any($1::text[])", []string{one.text, one.text + fencedEnd}).Scan(&name)
	if err == nil && name != "" {
		err = fmt.Errorf("%s has a schema %s: first tusk ledgers drop-copies, or drop that schema", target.name, name)
	}
	return err
}

// copyTo copies a fenced ledger and its functions.
func (one schema) copyTo(ctx context.Context, target *server, dump, psql string) error {
	if err := driveUp(ctx, one.at, target); err != nil {
		return err
	}
	programs, err := one.programs(ctx, one.at.pool)
	if err != nil {
		return err
	}
	plain, word := plainURL(one.at)
	args := []string{"--dbname", plain}
	for _, name := range append(programs, one.text) {
		args = append(args, "--schema", name)
	}
	from := exec.CommandContext(ctx, dump, args...)
	from.Env = word
	plain, word = plainURL(target)
	to := exec.CommandContext(ctx, psql, "--dbname", plain, "--quiet", "--no-psqlrc", "--single-transaction",
		"--set", "ON_ERROR_STOP=1", "--output", os.DevNull)
	to.Env = word
	var dumped, said bytes.Buffer
	from.Stderr, to.Stderr = &dumped, &said
	pipe, err := from.StdoutPipe()
	if err != nil {
		return err
	}
	to.Stdin = pipe
	if err := from.Start(); err != nil {
		return err
	}
	err = to.Start()
	_ = pipe.Close() // psql has an end of its own: once that is closed, too, pg_dump cannot write and ends
	if err == nil {
		err = to.Wait()
	}
	if err := errors.Join(err, from.Wait()); err != nil {
		return fmt.Errorf("copy: %w: %s", err, strings.TrimSpace(dumped.String()+said.String()))
	}
	_, err = target.pool.Exec(ctx, `
		do $$ declare _table text; begin
		  set local search_path = pg_catalog, pg_temp;
		  for _table in
		    select c.oid::regclass::text from pg_class c
		    where c.relnamespace = '`+one.text+`'::regnamespace and c.relkind in ('r', 'p')
		  loop execute 'analyze ' || _table; end loop;
		end $$`)
	return err
}

// tool finds a program of PostgreSQL, in the path or where Debian installs it.
func tool(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", fmt.Errorf("there is no %s here: install the client programs of PostgreSQL, to copy ledgers", name)
	}
	slices.Sort(found)
	return found[len(found)-1], nil
}

// ownParams are parameters of a URL that only the driver or Tusk knows.
var ownParams = []string{
	"tusk_schema", "default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity",
}

// wordInWords is the password in a connection string of key words.
var wordInWords = regexp.MustCompile(`(?i)\bpassword\s*=\s*(?:'(?:\\.|[^'\\])*'|(?:\\.|[^\s\\])+)`)

// plainURL returns a server's URL as PostgreSQL's programs accept it, and the environment for them. The password is
// there, because everybody can see the arguments of a process.
func plainURL(at *server) (text string, environ []string) {
	config := at.pool.Config()
	if word := config.ConnConfig.Password; word != "" {
		environ = append(os.Environ(), "PGPASSWORD="+word)
	}
	text = config.ConnString()
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return wordInWords.ReplaceAllString(text, ""), environ
	}
	query := u.Query()
	query.Del("password")
	for key := range query {
		if strings.HasPrefix(key, "pool_") || slices.Contains(ownParams, key) {
			query.Del(key)
		}
	}
	u.RawQuery = query.Encode()
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	return u.String(), environ
}
