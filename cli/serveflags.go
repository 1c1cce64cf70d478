package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tuskqueue/tusk"
	hide "github.com/tuskqueue/tusk/mask"
	"github.com/tuskqueue/tusk/server"
	accounts "github.com/tuskqueue/tusk/server/access"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	addr, certFile, keyFile    string
	insecure, https, readOnly  bool
	hosts, hidden, groups      []string
	groupQueues, groupTenants  []string
	pushAllow, trustProxy      []string
	hideAll                    bool
	prefix, environment        string
	issuer, clientID, redirect string
	clientSecret, claim        string
	smtp                       string
	drain                      time.Duration
	chores                     tusk.WorkerConfig
}

func (s *serveFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.addr, "addr", defaultAddr, "`address` to listen on")
	f.StringSliceVar(&s.hosts, "host", nil, "host `name` of the server, besides localhost; repeatable")
	f.StringVar(&s.certFile, "tls-cert", "", "`file` with the certificate")
	f.StringVar(&s.keyFile, "tls-key", "", "`file` with the certificate's key")
	f.BoolVar(&s.https, "https", false, "browsers use HTTPS through a proxy: send cookies only over HTTPS")
	f.BoolVar(&s.insecure, "insecure-http", false,
		"allow plain HTTP beyond loopback: passwords and tokens can be read on the way")
	f.StringVar(&s.prefix, "prefix", "", "`path` to serve everything under, such as /tusk")
	f.BoolVar(&s.readOnly, "read-only", false, "refuse every change")
	f.StringSliceVar(&s.hidden, "hide", hide.Default,
		"hide the values of fields with this `part` in their names; repeatable")
	f.BoolVar(&s.hideAll, "hide-args", false, "hide all args and outputs")
	f.StringSliceVar(&s.pushAllow, "push-allow", nil,
		"private `host`, host:port or network that endpoints and alerts may have, without TLS, too; repeatable")
	f.StringVar(&s.smtp, "smtp", "",
		"`URL` of the mail server for alerts, smtp://user:password@host:587?from=tusk@example.com; better: "+
			"TUSK_SERVE_SMTP_FILE")
	markSecret(f, "smtp")
	f.StringSliceVar(&s.trustProxy, "trust-proxy", nil,
		"`address` or network of a proxy in front, whose X-Forwarded-For counts; repeatable")
	f.Var(durationFlag(&s.drain), "drain",
		"how long to go on answering requests after a signal, while /readyz fails, so that load balancers stop sending "+
			"them first")
	f.StringVar(&s.environment, "environment", "", "`name` shown on every page, such as production")
	f.StringVar(&s.issuer, "oidc-issuer", "", "`URL` of the OpenID provider that people log in with")
	f.StringVar(&s.clientID, "oidc-client-id", "", "`id` of this server at the provider")
	f.StringVar(&s.clientSecret, "oidc-client-secret", "",
		"`secret` of this server at the provider; better: TUSK_SERVE_OIDC_CLIENT_SECRET_FILE")
	markSecret(f, "oidc-client-secret")
	f.StringVar(&s.redirect, "oidc-redirect-url", "", "`URL` of this server's /login/oidc/callback")
	f.StringVar(&s.claim, "oidc-claim", "groups", "`claim` that has a person's groups")
	f.StringSliceVar(&s.groups, "oidc-role", nil, "`GROUP=ROLE`: the role of a group's members; repeatable")
	f.StringSliceVar(&s.groupQueues, "oidc-queue", nil,
		"`GROUP=QUEUE`: restrict a group's members to this queue, or to a prefix followed by *; repeatable")
	f.StringSliceVar(&s.groupTenants, "oidc-tenant", nil, "`GROUP=TENANT`: the same for tenants; repeatable")
	addRetentionFlags(f, &s.chores.Retention)
}

func (s *serveFlags) cert() *server.TLS {
	if s.certFile == "" {
		return nil
	}
	return &server.TLS{CertFile: s.certFile, KeyFile: s.keyFile}
}

// config returns the server configuration that the flags describe.
func (s *serveFlags) config(app *App) (server.Config, error) {
	if s.clientSecret != "" {
		app.secrets = append(app.secrets, s.clientSecret)
	}
	c := server.Config{Hosts: s.hosts, Prefix: s.prefix, HTTPS: s.https || s.certFile != "", ReadOnly: s.readOnly,
		Environment: s.environment,
		Mask:        &hide.Mask{All: s.hideAll}, PushAllow: s.pushAllow, SMTP: s.smtp, Drain: s.drain,
		Logger: app.Log}
	if s.smtp != "" {
		app.secrets = append(app.secrets, s.smtp)
	}
	for _, part := range s.hidden {
		c.Mask.Names = append(c.Mask.Names, strings.ToLower(part))
	}
	var err error
	if c.TrustProxy, err = accounts.ParseProxies(s.trustProxy); err != nil {
		return c, usage("such as --trust-proxy 10.0.0.7 or --trust-proxy 10.1.0.0/16", "--trust-proxy: %v", err)
	}
	if (s.certFile == "") != (s.keyFile == "") {
		return c, usage("", "--tls-cert and --tls-key go together")
	}
	if s.issuer == "" {
		return c, s.needIssuer()
	}
	c.Provider = &accounts.Provider{Issuer: s.issuer, ClientID: s.clientID, ClientSecret: s.clientSecret,
		RedirectURL: s.redirect, Claim: s.claim,
		Roles: map[string]accounts.Role{}}
	if err := c.Provider.Check(); err != nil {
		return c, usage("", "--oidc-issuer: %v", err)
	}
	if s.clientID == "" || s.redirect == "" || len(s.groups) == 0 {
		return c, usage("", "--oidc-issuer needs --oidc-client-id, --oidc-redirect-url and at least one --oidc-role")
	}
	var problems []error
	for _, pair := range s.groups {
		group, name, _ := strings.Cut(pair, "=")
		role, err := accounts.ParseRole(name)
		if err != nil || group == "" {
			problems = append(problems, usage("such as --oidc-role ops=operator",
				"--oidc-role %s: want GROUP=ROLE, with a role of %v", quote(pair), accounts.Roles()))
		}
		c.Provider.Roles[group] = role
	}
	problems = append(problems, s.bounds(c.Provider))
	return c, errors.Join(problems...)
}

// needIssuer rejects flags for OpenID logins if there is no issuer.
func (s *serveFlags) needIssuer() error {
	for _, f := range []struct {
		name  string
		given bool
	}{{"client-id", s.clientID != ""}, {"client-secret", s.clientSecret != ""}, {"redirect-url", s.redirect != ""},
		{"role", len(s.groups) > 0}, {"queue", len(s.groupQueues) > 0}, {"tenant", len(s.groupTenants) > 0}} {
		if f.given {
			return usage("it is the URL of the OpenID provider", "--oidc-%s needs --oidc-issuer", f.name)
		}
	}
	return nil
}

// bounds limits the members of groups.
func (s *serveFlags) bounds(p *accounts.Provider) error {
	p.Bounds = map[string]accounts.Bounds{}
	for flag, pairs := range map[string][]string{"--oidc-queue": s.groupQueues, "--oidc-tenant": s.groupTenants} {
		for _, pair := range pairs {
			group, name, _ := strings.Cut(pair, "=")
			if p.Roles[group] == "" || accounts.CheckBounds([]string{name}, nil) != nil {
				return usage("such as --oidc-role ops=operator "+flag+" 'ops=acme*'",
					"%s %s: want GROUP=NAME, with a group of --oidc-role", flag, quote(pair))
			}
			b := p.Bounds[group]
			if flag == "--oidc-queue" {
				b.Queues = append(b.Queues, name)
			} else {
				b.Tenants = append(b.Tenants, name)
			}
			p.Bounds[group] = b
		}
	}
	return nil
}

// check rejects an address where others could listen in on the traffic.
func (s *serveFlags) check(c server.Config) error {
	ip, err := checkAddr(s.addr)
	if err != nil {
		return err
	}
	if err := c.CheckAddress(ip, s.certFile != "", s.insecure); err != nil {
		p := usage("127.0.0.1:8787 needs none of this", "--addr %s: %v", quote(s.addr), err)
		p.Code = "not_loopback"
		return p
	}
	return nil
}

// warnOfNobody warns an operator who could not log in because there are no users and tokens.
func (app *App) warnOfNobody(ctx context.Context, site *server.Server) {
	users, err := site.Book().Users(ctx)
	tokens, err2 := site.Book().Tokens(ctx)
	if err == nil && err2 == nil && len(users)+len(tokens) == 0 {
		app.Log.Warn("serve: there are no users and no tokens yet: tusk users put NAME --role admin")
	}
}
