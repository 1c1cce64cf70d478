package server_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestOnlyLoopbackNeedsNothing(t *testing.T) {
	hosts := []string{"tusk.example.com"}
	for _, c := range []struct {
		ip            string
		config        server.Config
		tls, insecure bool
		ok            bool
	}{
		{"127.0.0.1", server.Config{}, false, false, true},
		{"::1", server.Config{Dev: true}, false, false, true},
		{"::ffff:127.0.0.1", server.Config{}, false, false, true},
		{"0.0.0.0", server.Config{}, false, false, false},
		{"::", server.Config{Hosts: hosts}, false, false, false},
		{"::ffff:0.0.0.0", server.Config{Hosts: hosts}, false, false, false},
		{"10.0.0.1", server.Config{}, true, false, false},
		{"10.0.0.1", server.Config{Hosts: hosts}, true, false, true},
		{"10.0.0.1", server.Config{Hosts: hosts, HTTPS: true}, false, false, true},
		{"10.0.0.1", server.Config{Hosts: hosts}, false, true, true},
		{"10.0.0.1", server.Config{Hosts: hosts, Dev: true}, true, true, false},
	} {
		if err := c.config.CheckAddress(net.ParseIP(c.ip), c.tls, c.insecure); (err == nil) != c.ok {
			t.Errorf("%s %+v: %v", c.ip, c, err)
		}
	}
}

func TestServeSpeaksTLSAndStops(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := &server.TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	for name, block := range map[string]*pem.Block{files.CertFile: {Type: "CERTIFICATE", Bytes: cert},
		files.KeyFile: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client, err := tusk.NewClient(memory.New(), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(client, server.Config{HTTPS: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, listener, files, false) }()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	port := listener.Addr().(*net.TCPAddr).Port
	visitor := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	a, err := visitor.Get("https://localhost:" + big.NewInt(int64(port)).String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if a.StatusCode != 200 || a.Header.Get("Strict-Transport-Security") == "" || a.TLS.Version != tls.VersionTLS13 {
		t.Error(a.Status, a.Header)
	}
	visitor.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAStreamOutlivesTheTimeForReading(t *testing.T) {
	s := start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := s.server.HTTP()
	h.ReadTimeout, h.WriteTimeout = 300*time.Millisecond, 300*time.Millisecond
	go func() { _ = h.Serve(listener) }()
	defer h.Close()
	for _, path := range []string{"/api/v1/events", "/live"} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.token)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		events := 0
		for lines := bufio.NewScanner(a.Body); events < 3 && lines.Scan(); { // one per second
			if strings.HasPrefix(lines.Text(), "data: ") {
				events++
			}
		}
		if events < 3 {
			t.Errorf("%s ended after %d events", path, events)
		}
	}
}

func TestNothingRunsAfterAServerHasStopped(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("server", func(t *testing.T) {
		s := start(t)
		ctx, cancel := context.WithCancel(t.Context())
		var streams sync.WaitGroup
		defer streams.Wait()
		defer cancel()
		for _, path := range []string{"/api/v1/events", "/live", "/live"} {
			r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+s.token)
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			streams.Go(func() { defer a.Body.Close(); _, _ = io.Copy(io.Discard, a.Body) })
		}
		s.do("POST", "/api/v1/tasks", object{"kind": "k"}).want(t, 201, nil)
		s.lease(object{"queues": []string{"default"}, "wait": "5s"})
		s.do("POST", "/api/v1/bulk", object{"filter": object{}, "all": true, "action": "cancel"}).want(t, 202, nil)
	})
	http.DefaultClient.CloseIdleConnections()
}
