package server

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateAge is how long a server may present a certificate without looking for a newer one.
const certificateAge = time.Minute

// certificate is a certificate that is read again when its files change, because renewed ones replace the files of a
// running server.
type certificate struct {
	files TLS
	log   *slog.Logger
	age   time.Duration

	mu      sync.Mutex
	current *tls.Certificate
	version [2]time.Time // when the files had changed when current was read
	looked  time.Time
}

// certificate reads a certificate. The error says why it cannot be used.
func (s *Server) certificate(files TLS) (*certificate, error) {
	c := &certificate{files: files, log: s.log, age: certificateAge}
	return c, c.look()
}

// get returns the certificate to present. If a newer one cannot be read, it is the old one.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) >= c.age {
		if err := c.look(); err != nil {
			c.log.Warn("the certificate cannot be read again", "file", c.files.CertFile, "error", err)
		}
	}
	return c.current, nil
}

// look reads the files if they have changed.
func (c *certificate) look() error {
	c.looked = time.Now()
	var version [2]time.Time
	for i, name := range []string{c.files.CertFile, c.files.KeyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		version[i] = info.ModTime()
	}
	if version == c.version {
		return nil
	}
	read, err := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
	if err != nil {
		return err
	}
	c.current, c.version = &read, version
	return nil
}
