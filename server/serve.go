package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// TLS is a certificate and its key, read from files.
type TLS struct{ CertFile, KeyFile string }

// CheckAddress explains why a server with this configuration should not listen on an address: without TLS, others
// could read passwords and tokens; without a login, everybody could do everything.
func (c Config) CheckAddress(ip net.IP, tls, insecure bool) error {
	if ip.IsLoopback() {
		return nil
	}
	switch {
	case c.Dev:
		return fmt.Errorf("%s is not a loopback address: without a login the server listens only on 127.0.0.1", ip)
	case !tls && !c.HTTPS && !insecure:
		return fmt.Errorf("%s is not a loopback address: use TLS (--tls-cert, --tls-key), or a proxy that does (--https), "+
			"or allow plain HTTP (--insecure-http)", ip)
	case len(c.Hosts) == 0:
		return fmt.Errorf("%s is not a loopback address: name the hosts that the server serves (--host)", ip)
	}
	return nil
}

// Serve answers requests from a listener and runs the background work until ctx ends; then it drains (see Config) and
// stops gracefully. It refuses a listener that CheckAddress rejects. Cert may be nil; insecure allows plain HTTP beyond
// loopback. The files of a certificate are read again when they change.
func (s *Server) Serve(ctx context.Context, l net.Listener, cert *TLS, insecure bool) error {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		if err := s.config.CheckAddress(a.IP, cert != nil, insecure); err != nil {
			l.Close()
			return fmt.Errorf("serve: %w", err)
		}
	}
	server := s.HTTP()
	if cert != nil {
		current, err := s.certificate(*cert)
		if err != nil {
			l.Close()
			return fmt.Errorf("serve: %w", err)
		}
		server.TLSConfig.GetCertificate = current.get
	}
	failed := make(chan error, 1)
	go func() {
		if cert != nil {
			failed <- server.ServeTLS(l, "", "")
		} else {
			failed <- server.Serve(l)
		}
	}()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	behind := make(chan error, 1)
	go func() { behind <- s.Run(inner) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		s.closing.Store(true)
		select {
		case err = <-failed:
		case <-time.After(s.config.Drain):
		}
	}
	cancel()
	parting, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	if server.Shutdown(parting) != nil {
		server.Close()
	}
	if err = errors.Join(notClosed(err), <-behind); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func notClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// maxHead is the largest number of bytes in a request's head, which is its first line and its headers. The guard
// counts them and returns a problem. If a head is larger than readHead, net/http answers in plain text.
const (
	maxHead  = 16 << 10
	readHead = 64 << 10
)

// readTime is how long a request may take to arrive.
const readTime = 30 * time.Second

// HTTP returns a server with limits on slow peers.
func (s *Server) HTTP() *http.Server {
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTime,
		WriteTimeout:      45 * time.Second, // streams move their own deadline
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    readHead,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13},
	}
	connections(server)
	return server
}
