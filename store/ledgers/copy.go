package ledgers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// copyAll copies ledgers to a server, one after the other. Ledgers that are there already, fenced, are only opened.
func (s *Store) copyAll(ctx context.Context, seen *looked, todo []schema, target *server, m *Moved) error {
	arrived := func(one schema) bool { return one.at == target }
	var dump, psql string
	m.How = "opened"
	for _, one := range todo {
		if arrived(one) {
			continue
		}
		m.How = "copied"
		var err error
		if dump, err = tool("pg_dump"); err == nil {
			psql, err = tool("psql")
		}
		if err == nil {
			err = one.fits(ctx, target)
		}
		if err != nil {
			return fmt.Errorf("ledger %d: %w", one.no, err)
		}
	}
	if slices.ContainsFunc(todo, arrived) { // an interrupted promotion may have left open copies
		err := fenceCopies(ctx, slices.DeleteFunc(slices.Clone(seen.copies), func(one schema) bool { return !arrived(one) }))
		if err != nil {
			m.Note = fmt.Sprintf("%s has open copies of ledgers: tusk ledgers drop-copies: %v", target.name, err)
		}
	}
	for _, one := range todo {
		began := time.Now()
		var err error
		if arrived(one) {
			err = s.Open(ctx, target.name, one.no)
		} else {
			began, err = s.copyOne(ctx, one, target, dump, psql)
		}
		if err != nil {
			return fmt.Errorf("ledger %d: %w", one.no, err)
		}
		m.Stood = max(m.Stood, time.Since(began))
	}
	return nil
}

// copyOne copies a ledger, and returns when it became unusable. If it fails, it opens the ledger where it was, unless
// it was fenced before.
func (s *Store) copyOne(
	ctx context.Context, one schema, target *server, dump, psql string,
) (began time.Time, err error) {
	s.step("ledger %d: using up transaction ids of %s", one.no, target.name)
	if err := driveUp(ctx, one.at, target); err != nil {
		return began, err
	}
	began = time.Now()
	var own []schema
	if !one.fenced {
		if one, err = s.fenceOne(ctx, one); err != nil {
			return began, err
		}
		own = append(own, one)
	}
	s.step("ledger %d: copying it to %s", one.no, target.name)
	if err = one.copyTo(ctx, target, dump, psql); err == nil {
		err = s.Open(ctx, target.name, one.no)
	}
	if err != nil { // a copy on the target becomes an old one
		err = errors.Join(err, s.unfence(ctx, own))
	}
	return began, err
}

// fits fails if the target has a schema with a name that the copy would need.
func (one schema) fits(ctx context.Context, target *server) error {
	var name string
	err := target.pool.QueryRow(ctx, "select coalesce(min(nspname::text), '') from pg_catalog.pg_namespace "+
		"where nspname = any($1::text[])", []string{one.bare(), one.bare() + fencedEnd}).Scan(&name)
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
	to := exec.CommandContext(ctx, psql, "--dbname", plain, "--quiet", "--no-psqlrc",
		"--set", "ON_ERROR_STOP=1", "--output", os.DevNull)
	to.Env = word
	var dumped, said bytes.Buffer
	from.Stderr, to.Stderr = &dumped, &said
	pipe, err := from.StdoutPipe()
	if err != nil {
		return err
	}
	if err := from.Start(); err != nil {
		return err
	}
	ended := sync.OnceValue(from.Wait)
	to.Stdin = io.MultiReader(strings.NewReader("begin;\n"), pipe, &onSuccess{ended, strings.NewReader("commit;\n")})
	err = to.Run()
	_ = pipe.Close() // ends pg_dump if psql has failed
	if err := errors.Join(err, ended()); err != nil {
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

// onSuccess yields text if of returns nil, and nothing otherwise. psql commits only when told to, because it cannot
// tell whether pg_dump or this process was killed halfway.
type onSuccess struct {
	of   func() error
	text io.Reader
}

func (o *onSuccess) Read(p []byte) (int, error) {
	if o.of() != nil {
		return 0, io.EOF
	}
	return o.text.Read(p)
}

// tool finds a program of PostgreSQL in the PATH or where Debian installs it.
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

// ownParams are URL parameters that only the driver or Tusk understands.
var ownParams = []string{
	"tusk_schema", "default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity",
}

// wordInWords matches the password in a connection string of keywords.
var wordInWords = regexp.MustCompile(`(?i)\bpassword\s*=\s*(?:'(?:\\.|[^'\\])*'|(?:\\.|[^\s\\])+)`)

// plainURL returns a server's URL in a form that PostgreSQL's programs accept, and their environment. The password is
// in the environment, because the arguments of a process are visible to everybody.
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
