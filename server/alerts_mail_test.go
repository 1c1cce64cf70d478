package server_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/tuskqueue/tusk/server"
)

// post is a real SMTP server that requires STARTTLS and a password.
type post struct {
	mu    sync.Mutex
	mails []string
	to    []string
}

func (p *post) NewSession(*smtp.Conn) (smtp.Session, error) { return &postSession{p: p}, nil }

type postSession struct {
	p  *post
	in bool
	to string
}

func (s *postSession) AuthMechanisms() []string { return []string{sasl.Plain} }
func (s *postSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "tusk" || password != "pa55" {
			return smtp.ErrAuthFailed
		}
		s.in = true
		return nil
	}), nil
}
func (s *postSession) Mail(string, *smtp.MailOptions) error {
	if !s.in {
		return smtp.ErrAuthRequired
	}
	return nil
}
func (s *postSession) Rcpt(to string, _ *smtp.RcptOptions) error { s.to = to; return nil }
func (s *postSession) Data(r io.Reader) error {
	body, err := io.ReadAll(r)
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.mails, s.p.to = append(s.p.mails, string(body)), append(s.p.to, s.to)
	return err
}
func (s *postSession) Reset()        {}
func (s *postSession) Logout() error { return nil }

func TestAnAlertGoesOutByMail(t *testing.T) {
	certificate, authority := certify(t)
	for name, encrypted := range map[string]bool{"with STARTTLS": true, "to a server without it": false} {
		t.Run(name, func(t *testing.T) {
			p := &post{}
			mailServer := smtp.NewServer(p)
			if encrypted {
				mailServer.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
			}
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = mailServer.Serve(l) }()
			t.Cleanup(func() { mailServer.Close() })
			var log safeBuffer
			client := newClient(t, newMemory())
			s := startOn(t, client, quickAlerts, func(c *server.Config) {
				c.SMTP, c.Logger = fmt.Sprintf("smtp://tusk:pa55@%s?from=tusk@example.com&ca=%s", l.Addr(),
					url.QueryEscape(authority)), log.logger()
			})
			s.do("PUT", "/api/v1/alerts/a", object{"kind": "no_worker", "mail": []string{"ops@example.com"}}).want(t, 200, nil)
			enqueueTo(t, client, "q")
			if !encrypted { // the password is not sent in plain text
				var a server.Alert
				eventually(t, func() bool { s.do("GET", "/api/v1/alerts/a", nil).want(t, 200, &a); return a.Error != "" })
				if !strings.Contains(a.Error, "STARTTLS") || strings.Contains(a.Error+log.String(), "pa55") || len(p.mails) != 0 {
					t.Error(a.Error)
				}
				return
			}
			eventually(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.mails) == 1 })
			for _, want := range []string{"Subject: Tusk: a is firing", "From: <tusk@example.com>", "To: <ops@example.com>",
				"queue q has 1 available task", "Message-ID: <"} {
				if !strings.Contains(p.mails[0], want) {
					t.Errorf("no %q in %s", want, p.mails[0])
				}
			}
			if strings.Contains(log.String(), "pa55") {
				t.Error("the password is logged")
			}
		})
	}
}

// certify creates a certificate for 127.0.0.1, and a file with the authority for it.
func certify(t *testing.T) (c tls.Certificate, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	file = filepath.Join(t.TempDir(), "ca.pem")
	if err := errors.Join(pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}),
		os.WriteFile(file, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
