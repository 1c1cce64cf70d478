package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail"
)

// MailServer is the server for outgoing mail.
type MailServer struct {
	host, user, password, from string
	port                       int
	tls                        bool // TLS from the first byte
	plain                      bool // no TLS, allowed only on loopback
	authority                  *x509.CertPool
}

// ParseMailServer reads a URL like smtp://user:password@host:587?from=tusk@example.com. With smtp, TLS begins with
// STARTTLS, and a server without it gets no mail. With smtps, the connection begins with TLS. Only a server on this
// machine may be used without TLS, with tls=off. ca=FILE names the authority for the server's certificate, which
// replaces those that the system trusts.
func ParseMailServer(text string) (*MailServer, error) {
	const want = "smtp: want smtp://USER:PASSWORD@HOST:587?from=ADDRESS, or smtps://…"
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "smtp" && u.Scheme != "smtps" {
		return nil, errors.New(want) // omit the text: it may contain a password
	}
	m := &MailServer{host: u.Hostname(), user: u.User.Username(), port: 587, tls: u.Scheme == "smtps"}
	m.password, _ = u.User.Password()
	if m.tls {
		m.port = 465
	}
	if p := u.Port(); p != "" {
		if m.port, err = strconv.Atoi(p); err != nil {
			return nil, errors.New(want)
		}
	}
	from, err := netmail.ParseAddress(u.Query().Get("from"))
	if err != nil {
		return nil, errors.New("smtp: from=ADDRESS is missing, or is none")
	}
	m.from = from.Address
	if file := u.Query().Get("ca"); file != "" {
		pem, err := os.ReadFile(file)
		m.authority = x509.NewCertPool()
		if err != nil || !m.authority.AppendCertsFromPEM(pem) {
			return nil, errors.New("smtp: ca: the file has no certificates, or cannot be read")
		}
	}
	switch off := u.Query().Get("tls"); {
	case off == "":
	case off != "off":
		return nil, errors.New("smtp: tls: want off, or nothing")
	case m.host != "localhost" && !net.ParseIP(m.host).IsLoopback():
		return nil, errors.New("smtp: tls=off is for a mail server on this machine alone")
	default:
		m.plain = true
	}
	return m, nil
}

func (s *MailServer) send(ctx context.Context, to string, m *Message) error {
	message := mail.NewMsg()
	if err := errors.Join(message.From(s.from), message.To(to)); err != nil {
		return errors.New("mail: an address cannot be used")
	}
	message.Subject(oneLine(m.Title()))
	message.SetMessageIDWithValue(m.ID + "." + hostOf(s.from))
	message.SetDateWithValue(m.Timestamp)
	text := m.Data.Text + "\n"
	if !m.Data.Since.IsZero() {
		text += "\nSince " + m.Data.Since.UTC().Format(time.RFC1123) + "\n"
	}
	message.SetBodyString(mail.TypeTextPlain, text)
	options := []mail.Option{mail.WithPort(s.port), mail.WithTimeout(within), mail.WithTLSPolicy(mail.TLSMandatory)}
	if s.authority != nil {
		options = append(options, mail.WithTLSConfig(&tls.Config{ServerName: s.host, RootCAs: s.authority,
			MinVersion: tls.VersionTLS12}))
	}
	if s.tls {
		options = append(options, mail.WithSSL())
	}
	if s.plain {
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	}
	if s.user != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(s.user),
			mail.WithPassword(s.password))
	}
	client, err := mail.NewClient(s.host, options...)
	if err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	if err := client.DialAndSendWithContext(ctx, message); err != nil {
		return fmt.Errorf("mail: %s", strings.ToValidUTF8(oneLine(err.Error()), ""))
	}
	return nil
}

// within is how long the mail server may take for one message.
const within = 10 * time.Second

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func hostOf(address string) string {
	_, host, _ := strings.Cut(address, "@")
	return "tusk@" + host
}
