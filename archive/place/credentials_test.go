package place

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// asked returns the request that a server gets when an object there is read.
func asked(t *testing.T, location func(address string) string) *http.Request {
	t.Helper()
	var request *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"access_token": "the token", "token_type": "Bearer", "expires_in": 3600}`))
			return
		}
		request = r
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	b := reach(t, location(strings.TrimPrefix(server.URL, "http://")), patience)
	if _, err := b.ReadAll(t.Context(), "file"); err == nil || request == nil {
		t.Fatalf("the server was not asked: %v", err)
	}
	return request
}

func TestGoogleIsAskedWithTheDefaultCredentials(t *testing.T) {
	r := asked(t, func(address string) string {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		account, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "tusk@example.com",
			"token_uri": "http://" + address + "/token",
			"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
				Bytes: x509.MarshalPKCS1PrivateKey(key)}))})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "account.json")
		if err := os.WriteFile(file, account, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
		return "gs://bucket?endpoint=http://" + address
	})
	if got := r.Header.Get("Authorization"); got != "Bearer the token" ||
		!strings.HasPrefix(r.URL.Path, "/storage/v1/b/bucket/o/") {
		t.Errorf("%s was asked for with %q", r.URL, got)
	}
}

func TestGoogleTakesNoOtherParameters(t *testing.T) {
	if _, err := Open(t.Context(), "gs://bucket?anonymous=true&private_key_path=/etc/passwd"); err == nil ||
		!strings.Contains(err.Error(), "private_key_path") {
		t.Errorf("it was opened: %v", err)
	}
}

func TestAzureIsAskedWithWhatTheEnvironmentHas(t *testing.T) {
	const key = "dHVzay1rZXk="
	for name, c := range map[string]struct {
		variables     map[string]string
		authorization string
		query         string
	}{
		"key": {map[string]string{"AZURE_STORAGE_ACCOUNT": "tusk", "AZURE_STORAGE_KEY": key}, "SharedKey tusk:", ""},
		"signature": {map[string]string{"AZURE_STORAGE_ACCOUNT": "tusk", "AZURE_STORAGE_SAS_TOKEN": "sv=2026&sig=secret"},
			"", "sig=secret"},
		"connection": {map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "AccountName=tusk;AccountKey=" + key +
			";BlobEndpoint=http://ADDRESS/tusk;"}, "SharedKey tusk:", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := asked(t, func(address string) string {
				for variable, value := range c.variables {
					t.Setenv(variable, strings.ReplaceAll(value, "ADDRESS", address))
				}
				if name == "signature" { // the URL may not say where the signature goes
					t.Setenv("AZURE_STORAGE_DOMAIN", address)
					t.Setenv("AZURE_STORAGE_PROTOCOL", "http")
					return "azblob://container"
				}
				return "azblob://container?protocol=http&domain=" + address
			})
			if got := r.Header.Get("Authorization"); !strings.HasPrefix(got, c.authorization) ||
				!strings.Contains(r.URL.RawQuery, c.query) || r.URL.Path != "/tusk/container/file" {
				t.Errorf("%s was asked for with %q", r.URL, got)
			}
		})
	}
}

func TestASignatureGoesNowhereElseAndIsNotTold(t *testing.T) {
	t.Setenv("AZURE_STORAGE_ACCOUNT", "tusk")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "sig=secret")
	if _, err := Open(t.Context(), "azblob://container?domain=example.com"); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("it was opened: %v", err)
	}
	r, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:1/tusk/container/file?sig=secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (discreet{}).Do(r); err == nil || strings.Contains(err.Error(), "secret") ||
		!strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("the error tells: %v", err)
	}
}
