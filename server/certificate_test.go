package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A certificate that was renewed is presented without a restart. While its key is missing, the old one is.
func TestARenewedCertificateIsUsed(t *testing.T) {
	dir := t.TempDir()
	files := TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	write := func(name, kind string, content []byte, at int64) {
		t.Helper()
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, time.Unix(at, 0), time.Unix(at, 0)); err != nil {
			t.Fatal(err)
		}
	}
	generate := func(serial int64) (cert, key []byte) {
		t.Helper()
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
		if cert, err = x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private); err != nil {
			t.Fatal(err)
		}
		if key, err = x509.MarshalPKCS8PrivateKey(private); err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	s := &Server{log: slog.New(slog.DiscardHandler)}
	if _, err := s.certificate(files); err == nil {
		t.Error("a certificate without files is accepted")
	}
	cert, key := generate(1)
	write(files.CertFile, "CERTIFICATE", cert, 1)
	write(files.KeyFile, "PRIVATE KEY", key, 1)
	c, err := s.certificate(files)
	if err != nil {
		t.Fatal(err)
	}
	presents := func(when string, serial int64) {
		t.Helper()
		got, err := c.get(nil)
		if err != nil || got.Leaf.SerialNumber.Int64() != serial {
			t.Errorf("%s: %v, %v", when, got.Leaf.SerialNumber, err)
		}
	}
	cert, key = generate(2)
	write(files.CertFile, "CERTIFICATE", cert, 2)
	presents("a moment later", 1)
	c.age = 0
	presents("when only the certificate was replaced", 1)
	write(files.KeyFile, "PRIVATE KEY", key, 2)
	presents("when both were replaced", 2)
}
