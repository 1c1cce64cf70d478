package cli

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/tuskqueue/tusk/internal/words"
)

// dsn is a database URL, parsed as far as the command line needs it. The engine parses the rest.
type dsn struct {
	text   string // as given
	engine string // sqlite, postgres, mysql, …
	path   string // for a file: without scheme and parameters
}

// engineOf maps a scheme to its engine, including engines of later releases.
var engineOf = map[string]string{
	"sqlite": "sqlite", "sqlite3": "sqlite", "file": "sqlite",
	"postgres": "postgres", "postgresql": "postgres",
	"mysql": "mysql", "mariadb": "mysql",
	"citus": "citus", "ledgers": "ledgers", "couchbase": "couchbase", "couchbases": "couchbase",
}

const dsnHint = "use sqlite:FILE, such as sqlite:tusk.db, postgres://user@host/database, mysql://user@host/database, " +
	"couchbase://user@host/bucket or \"ledgers: postgres://host1/database postgres://host2/database\""

// parseDSN parses a database URL. Its errors never show the URL, which may contain a password.
func parseDSN(text string) (dsn, error) {
	d := dsn{text: text}
	if strings.TrimSpace(text) == "" {
		return d, badDSN(dsnHint, "the database URL is empty")
	}
	scheme, rest, found := strings.Cut(text, ":")
	if !found {
		if isDatabaseFile(text) {
			d.engine, d.path, d.text = "sqlite", text, "sqlite:"+text
			return d, nil
		}
		return d, badDSN(dsnHint, "the database URL has no scheme")
	}
	scheme = strings.ToLower(scheme)
	if d.engine = engineOf[scheme]; d.engine == "" {
		names := []string{"sqlite", "postgres", "mysql", "mariadb", "couchbase", "ledgers"}
		hint := words.DidYouMean(scheme, names)
		if hint == "" {
			hint = dsnHint
		}
		return d, badDSN(hint, "the database URL has the unknown scheme %s", quote(scheme))
	}
	if d.engine == "sqlite" {
		var err error
		d.path, err = filePath(rest)
		return d, err
	}
	if d.engine == "ledgers" {
		return d, checkDatabases(databasesOf(text))
	}
	if err := checkServerURL(text); err != nil {
		return d, err
	}
	if u, err := url.Parse(text); err == nil && d.engine == "mysql" && strings.Trim(u.Path, "/") == "" {
		return d, badDSN("write mysql://user@host/database", "the database URL names no database")
	}
	if u, err := url.Parse(text); err == nil && d.engine == "couchbase" && strings.Trim(u.Path, "/") == "" {
		return d, badDSN("write couchbase://user@host/bucket", "the database URL names no bucket")
	}
	return d, nil
}

// databasesOf returns the database URLs in a URL of many ledgers.
func databasesOf(text string) []string {
	_, list, _ := strings.Cut(text, ":")
	return strings.Fields(list)
}

// checkDatabases finds common mistakes in the URLs of databases with ledgers.
func checkDatabases(list []string) error {
	if len(list) == 0 {
		return badDSN(`write "ledgers: postgres://host1/database postgres://host2/database"`,
			"the database URL names no database")
	}
	for _, one := range list {
		if scheme, _, _ := strings.Cut(one, ":"); engineOf[strings.ToLower(scheme)] != "postgres" {
			return badDSN("ledgers are on PostgreSQL: write postgres://user@host/database, one for each server",
				"the database URL has the scheme %s in its list", quote(scheme))
		}
		if err := checkServerURL(one); err != nil {
			return err
		}
	}
	return nil
}

// filePath parses what follows the scheme of a file.
func filePath(rest string) (string, error) {
	name, query, _ := strings.Cut(rest, "?")
	if after, slashes := strings.CutPrefix(name, "//"); slashes {
		if name = after; !strings.HasPrefix(after, "/") && strings.Contains(after, "/") {
			return "", badDSN("write sqlite:dir/file.db, or sqlite:///dir/file.db for an absolute path",
				"the database URL names a host, which a file does not have")
		}
	}
	path, err := url.PathUnescape(name)
	values, queryErr := url.ParseQuery(query)
	switch {
	case err != nil || queryErr != nil:
		return "", badDSN("write %25 for a percent sign", "the database URL is not well escaped")
	case path == "":
		return "", badDSN("name a file: sqlite:tusk.db", "the database URL names no file")
	case strings.ContainsRune(path, 0):
		return "", badDSN("name a file: sqlite:tusk.db", "the database URL has a zero byte")
	case path == ":memory:" || values.Get("mode") == "memory":
		return "", badDSN("name a file: sqlite:tusk.db", "a database in memory would be gone when the command ends")
	case values.Get("mode") == "ro":
		return "", badDSN("leave mode=ro out", "the database URL asks for a read-only database")
	}
	return path, nil
}

// checkServerURL finds common mistakes in the URL of a database server.
func checkServerURL(text string) error {
	_, rest, found := strings.Cut(text, "://")
	if !found {
		return badDSN(dsnHint, "the database URL has no // after its scheme")
	}
	authority := rest
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user := rest[:at]
		if strings.ContainsAny(user, "/?#@ ") || hasBadEscape(user) {
			return badDSN(`write @ as %40, / as %2F, # as %23, ? as %3F, % as %25`,
				"the password in the database URL has a character that must be escaped")
		}
		authority = rest[at+1:]
	}
	if end := strings.IndexAny(authority, "/?#"); end >= 0 {
		authority = authority[:end]
	}
	for _, host := range strings.Split(authority, ",") {
		port, named := portOf(host)
		if n, err := strconv.Atoi(port); named && (err != nil || n < 1 || n > 65535) {
			return badDSN("use a number from 1 to 65535, such as :5432", "the port in the database URL is %s", quote(port))
		}
		if strings.Count(host, ":") > 1 && !strings.HasPrefix(host, "[") {
			return badDSN("write it in brackets: [::1]:5432", "the database URL has an IPv6 address without brackets")
		}
	}
	if _, err := url.Parse(text); err != nil {
		return badDSN(dsnHint, "the database URL cannot be read")
	}
	return nil
}

func portOf(host string) (string, bool) {
	if end := strings.LastIndexByte(host, ']'); end >= 0 {
		host = host[end+1:]
	} else if strings.Count(host, ":") > 1 {
		return "", false
	}
	_, port, named := strings.Cut(host, ":")
	return port, named
}

func hasBadEscape(user string) bool {
	_, err := url.PathUnescape(user)
	return err != nil
}

func badDSN(hint, format string, args ...any) *Problem {
	p := usage(hint, format, args...)
	p.Code = "invalid_dsn"
	return p
}

// isDatabaseFile recognizes a bare path.
func isDatabaseFile(text string) bool {
	for _, end := range []string{".db", ".sqlite", ".sqlite3"} {
		if strings.HasSuffix(text, end) {
			return true
		}
	}
	return false
}

var (
	passwordInURL   = regexp.MustCompile(`(://[^\s/@:]*:)[^\s"]*@`)
	passwordInWords = regexp.MustCompile(`(?i)\b((?:ssl)?password|passwd|pwd|secret|token)=('[^']*'|[^\s&;"]+)`)
)

// mask hides the passwords in text with database URLs.
func mask(text string) string {
	text = passwordInURL.ReplaceAllString(text, "${1}***@")
	return passwordInWords.ReplaceAllString(text, "$1=***")
}

// hideDSN returns a database setting with *** instead of the password, even if it has a form that tusk does not
// accept.
func hideDSN(text string) string {
	if d, err := parseDSN(text); err == nil && d.engine == "ledgers" {
		hidden := []string{"ledgers:"}
		for _, one := range databasesOf(text) {
			hidden = append(hidden, hideDSN(one))
		}
		return strings.Join(hidden, " ")
	}
	if from, to, found := passwordOf(text); found {
		text = text[:from] + "***" + text[to:]
	}
	return mask(text)
}

// passwordOf finds the password before the last @ of a database setting: the text after the user's name, or all of it
// if there is only one of the two after a scheme.
func passwordOf(text string) (from, to int, found bool) {
	to = strings.LastIndexByte(text, '@')
	if to < 0 {
		return 0, 0, false
	}
	start := 0
	scheme, rest, hasScheme := strings.Cut(text[:to], ":")
	known := hasScheme && (engineOf[strings.ToLower(scheme)] != "" || strings.HasPrefix(rest, "//"))
	if known && engineOf[strings.ToLower(scheme)] == "sqlite" {
		return 0, 0, false
	}
	if known {
		start = len(scheme) + 1
		start += len(rest) - len(strings.TrimPrefix(rest, "//"))
	}
	if colon := strings.IndexByte(text[start:to], ':'); colon >= 0 {
		return start + colon + 1, to, true
	}
	return start, to, known && !strings.HasPrefix(rest, "//")
}

// dsnSecrets returns the passwords in a database URL, as written and decoded.
func dsnSecrets(text string) []string {
	var secrets []string
	if list := databasesOf(text); len(list) > 0 && strings.Contains(list[0], "://") {
		for _, one := range list {
			secrets = append(secrets, dsnSecrets(one)...)
		}
	}
	if from, to, found := passwordOf(text); found {
		secrets = append(secrets, text[from:to])
	}
	if u, err := url.Parse(text); err == nil {
		if password, ok := u.User.Password(); ok {
			secrets = append(secrets, password)
		}
		secrets = append(secrets, u.Query().Get("password"))
	}
	var long []string
	for _, s := range secrets {
		if len(s) >= 3 { // hiding a single letter would hide much of any text
			long = append(long, s)
		}
	}
	return long
}
