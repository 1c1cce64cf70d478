package server

import (
	"time"

	"github.com/tuskqueue/tusk/server/access"
)

// TokenList is a list of API tokens, without their secrets.
type TokenList struct {
	Tokens []access.Token `json:"tokens"`
}

func listTokens(c *call, _ struct{}) (TokenList, error) {
	tokens, err := c.book.Tokens(c.r.Context())
	return TokenList{Tokens: tokens}, err
}

type createTokenInput struct {
	Body TokenInput
}

// TokenInput is an API token to create.
type TokenInput struct {
	Name      string   `json:"name" rule:"person"`
	Role      string   `json:"role" enum:"producer,worker,service,viewer,operator,admin"`
	Queues    []string `json:"queues,omitempty" rule:"bound" maxItems:"100" doc:"names, or prefixes before *; none: all"`
	Tenants   []string `json:"tenants,omitempty" rule:"bound" maxItems:"100" doc:"the same"`
	ExpiresAt *Instant `json:"expires_at,omitempty"`
}

// NewToken is a token with its secret, which is never shown again.
type NewToken struct {
	Secret string       `json:"secret"`
	Token  access.Token `json:"token"`
}

func createToken(c *call, in createTokenInput) (NewToken, error) {
	b := in.Body
	c.target, c.detail = short(b.Name), b.Role
	secret, t, err := c.book.CreateToken(c.r.Context(),
		access.Token{Name: b.Name, Role: access.Role(b.Role), Queues: b.Queues, Tenants: b.Tenants,
			ExpiresAt: instant(b.ExpiresAt)}, c.who.Name)
	return NewToken{Secret: secret, Token: t}, err
}

type byName struct {
	ID string `path:"id" rule:"value"`
}

func revokeToken(c *call, in byName) (nothing, error) {
	c.target = short(in.ID)
	return nothing{}, c.book.RevokeToken(c.r.Context(), in.ID)
}

// UserList is a list of local users.
type UserList struct {
	Users []access.User `json:"users"`
}

func listUsers(c *call, _ struct{}) (UserList, error) {
	users, err := c.book.Users(c.r.Context())
	return UserList{Users: users}, err
}

type byUser struct {
	Name string `path:"name" rule:"person"`
}

type putUserInput struct {
	byUser
	Body struct {
		Password string   `json:"password" rule:"password" doc:"at least 10 characters, at most 72 bytes"`
		Role     string   `json:"role" enum:"producer,worker,service,viewer,operator,admin"`
		Queues   []string `json:"queues,omitempty" rule:"bound" maxItems:"100"`
		Tenants  []string `json:"tenants,omitempty" rule:"bound" maxItems:"100"`
	}
}

func putUser(c *call, in putUserInput) (access.User, error) {
	c.target, c.detail = short(in.Name), in.Body.Role
	u := access.User{Name: in.Name, Role: access.Role(in.Body.Role), Queues: in.Body.Queues, Tenants: in.Body.Tenants}
	return u, c.book.PutUser(c.r.Context(), u, in.Body.Password)
}

func removeUser(c *call, in byUser) (nothing, error) {
	c.target = short(in.Name)
	return nothing{}, c.book.RemoveUser(c.r.Context(), in.Name)
}

// PersonList is a list of people who are logged in.
type PersonList struct {
	People []access.Person `json:"people"`
}

func listPeople(c *call, _ struct{}) (PersonList, error) {
	people, err := c.book.People(c.r.Context())
	return PersonList{People: append([]access.Person{}, people...)}, err
}

type endSessionsInput struct {
	Body struct {
		Identity string `json:"identity" required:"true" rule:"value" doc:"of a person, as in the list of sessions"`
	}
}

func endSessions(c *call, in endSessionsInput) (nothing, error) {
	c.target = short(in.Body.Identity)
	return nothing{}, c.book.EndSessions(c.r.Context(), in.Body.Identity)
}

type auditInput struct {
	Limit int       `query:"limit" minimum:"1" maximum:"5000" default:"100"`
	Who   string    `query:"who" rule:"value" doc:"a name, or an identity as in /me; names may be shared"`
	Since time.Time `query:"since" doc:"a time, or how long ago"`
}

// AuditList is a part of the audit log.
type AuditList struct {
	Entries []access.Entry `json:"entries"`
}

func listAudit(c *call, in auditInput) (AuditList, error) {
	entries, err := c.book.Entries(c.r.Context(), access.EntryFilter{Who: in.Who, Since: in.Since, Limit: in.Limit})
	return AuditList{Entries: append([]access.Entry{}, entries...)}, err
}
