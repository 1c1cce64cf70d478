package ui

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/server/access"
)

type peopleData struct {
	Tokens  []access.Token
	Users   []access.User
	People  []access.Person
	Roles   []access.Role
	Problem string
	Local   bool // people can log in here
}

func people(v *visit) (answer, error) { return v.people(nil) }

func (v *visit) people(problem error) (a answer, err error) {
	a = answer{page: "access", title: "Access", section: "access"}
	d := peopleData{Roles: access.Roles(), Local: v.Gate != nil && !v.Gate.Dev}
	if d.Problem, err = a.explain(problem); err != nil {
		return a, err
	}
	if d.Tokens, err = v.Book.Tokens(v.r.Context()); err != nil {
		return a, err
	}
	if d.Users, err = v.Book.Users(v.r.Context()); err != nil {
		return a, err
	}
	d.People, err = v.Book.People(v.r.Context())
	a.data = d
	return a, err
}

func createToken(v *visit) (answer, error) {
	f := v.r.PostForm
	t := access.Token{Name: strings.TrimSpace(f.Get("name")), Role: access.Role(f.Get("role")),
		Queues: words(f.Get("queues")), Tenants: words(f.Get("tenants"))}
	v.target, v.detail = t.Name, string(t.Role)
	if days := f.Get("expires"); days != "" {
		n, err := number(days)
		if err != nil || n < 1 || n > 3650 {
			return v.people(failure(http.StatusBadRequest, "A token expires in 1 to 3650 days."))
		}
		t.ExpiresAt = time.Now().AddDate(0, 0, n).UTC().Truncate(time.Second)
	}
	secret, _, err := v.Book.CreateToken(v.r.Context(), t, v.who.Name)
	if err != nil {
		return v.people(err)
	}
	return show(newSecret{"access", "The token " + t.Name, "Programs log in to the API with it.", secret}), nil
}

func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func revokeToken(v *visit) (answer, error) {
	v.target = v.r.PathValue("id")
	return goTo("/access", "revoked"), v.Book.RevokeToken(v.r.Context(), v.target)
}

func putUser(v *visit) (answer, error) {
	f := v.r.PostForm
	u := access.User{Name: strings.TrimSpace(f.Get("name")), Role: access.Role(f.Get("role")),
		Queues: words(f.Get("queues")), Tenants: words(f.Get("tenants"))}
	v.target, v.detail = u.Name, string(u.Role)
	if err := v.Book.PutUser(v.r.Context(), u, f.Get("password")); err != nil {
		return v.people(err)
	}
	return goTo("/access", "saved"), nil
}

func removeUser(v *visit) (answer, error) {
	v.target = v.r.PathValue("name")
	return goTo("/access", "removed"), v.Book.RemoveUser(v.r.Context(), v.target)
}

// endSessions logs a person out everywhere.
func endSessions(v *visit) (answer, error) {
	v.target = v.r.PostFormValue("identity")
	return goTo("/access", "sessionsended"), v.Book.EndSessions(v.r.Context(), v.target)
}

type accountData struct {
	Problem string
}

func account(v *visit) (answer, error) { return v.account(nil) }

func (v *visit) account(problem error) (answer, error) {
	a := answer{page: "account", title: "Your account", section: "account"}
	var d accountData
	switch {
	case problem == nil:
	case errors.Is(problem, access.ErrWrong):
		d.Problem, a.status = "The present password is wrong.", http.StatusUnprocessableEntity
	case errors.Is(problem, access.ErrTooMany):
		d.Problem, a.status = "Too many wrong passwords. Try again in a minute.", http.StatusTooManyRequests
	case errors.Is(problem, access.ErrInvalid):
		d.Problem, a.status = failureOf(problem).Text, http.StatusUnprocessableEntity
	default:
		return a, problem
	}
	a.data = d
	return a, nil
}

// changePassword changes the visitor's own password and ends the visitor's other sessions.
func changePassword(v *visit) (answer, error) {
	v.target = v.who.Name
	f := v.r.PostForm
	if f.Get("password") != f.Get("again") {
		return v.account(fmt.Errorf("%w: the new passwords differ", access.ErrInvalid))
	}
	if err := v.Gate.ChangePassword(v.r, f.Get("present"), f.Get("password")); err != nil {
		return v.account(err)
	}
	return goTo("/account", "password"), nil
}

type auditData struct {
	Entries []access.Entry
	Who     string
	More    bool
}

const shownEntries = 200

func audit(v *visit) (answer, error) {
	d := auditData{Who: v.r.URL.Query().Get("who")}
	entries, err := v.Book.Entries(v.r.Context(), access.EntryFilter{Who: d.Who, Limit: shownEntries + 1})
	if err != nil {
		return answer{}, err
	}
	d.More = len(entries) > shownEntries
	d.Entries = entries[:min(len(entries), shownEntries)]
	return answer{page: "audit", title: "Audit log", section: "audit", data: d}, nil
}

type loginData struct {
	Next, Name, Problem string
	Provider            bool
}

func loginPage(v *visit) (answer, error) {
	if v.who.Name != "" && v.who.May(access.Read) {
		return goTo("/"), nil
	}
	return answer{page: "login", title: "Log in", data: loginData{Next: next(v.r), Provider: v.Gate.Provider != nil}}, nil
}

func login(v *visit) (answer, error) {
	name := strings.TrimSpace(v.r.PostFormValue("name"))
	who, err := v.Gate.Login(v.w, v.r, name, v.r.PostFormValue("password"))
	v.who.Name, v.who.Via = "("+short(name)+")", "login"
	if who.Name != "" {
		v.who = who
	}
	if !errors.Is(err, access.ErrTooMany) { // these would fill the log
		v.note("login", err != nil)
	}
	v.who = who
	status := 0
	switch {
	case errors.Is(err, access.ErrWrong):
		status = http.StatusUnauthorized
	case errors.Is(err, access.ErrTooMany):
		status = http.StatusTooManyRequests
	case errors.Is(err, access.ErrFull):
		status = http.StatusServiceUnavailable
	case err != nil:
		return answer{}, err
	default:
		return goTo(next(v.r)), nil
	}
	return answer{page: "login", title: "Log in", status: status,
		data: loginData{Next: next(v.r), Name: name, Problem: "Not logged in: " + err.Error() + ".",
			Provider: v.Gate.Provider != nil}}, nil
}

// next returns where to go after a login: only to a path of these pages.
func next(r *http.Request) string {
	to := r.FormValue("next")
	at, err := url.Parse(to)
	plain := !strings.ContainsFunc(to, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '\\' })
	if err != nil || !plain || at.Host != "" || at.Scheme != "" || !strings.HasPrefix(to, "/") ||
		strings.HasPrefix(to, "//") || strings.HasPrefix(to, loginURL) {
		return "/"
	}
	return to
}

func short(text string) string {
	if len(text) > 64 {
		return strings.ToValidUTF8(text[:64], "") + "…"
	}
	return text
}

func logout(v *visit) (answer, error) {
	return goTo(loginURL), v.Gate.Logout(v.w, v.r)
}

func loginElsewhere(v *visit) (answer, error) {
	return answer{done: true}, v.Gate.Begin(v.w, v.r)
}

func loggedInElsewhere(v *visit) (answer, error) {
	who, err := v.Gate.End(v.w, v.r)
	switch {
	case errors.Is(err, access.ErrUnauthenticated):
		return answer{}, failure(http.StatusUnauthorized, "The login did not succeed. Begin again from the login page.")
	case errors.Is(err, access.ErrNoRole):
		return answer{}, failure(http.StatusForbidden,
			"You are logged in, but your account has no role here. Ask an admin to add one of your groups.")
	case err != nil:
		return answer{}, err
	}
	v.who = who
	v.note("login", false)
	return goTo("/"), nil
}

// setTheme stores the choice in a cookie, so that pages have the right colours without a script.
func setTheme(v *visit) (answer, error) {
	choice := v.r.PostFormValue("theme")
	if choice != "dark" && choice != "light" {
		choice = "auto"
	}
	http.SetCookie(v.w, &http.Cookie{Name: "tusk_theme", Value: choice, Path: v.Prefix + "/", MaxAge: 365 * 24 * 3600,
		HttpOnly: true, SameSite: http.SameSiteLaxMode})
	return goTo(next(v.r)), nil
}
