package server

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// overHTTP2 sends a request over HTTP/2 with TLS, and returns the response's body.
func overHTTP2(t *testing.T, h http.HandlerFunc, body []byte) ([]byte, error) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	r, err := http.NewRequestWithContext(t.Context(), "PUT", s.URL, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Client().Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	if a.ProtoMajor != 2 {
		t.Fatal(a.Proto)
	}
	return io.ReadAll(a.Body)
}

// Over HTTP/2, a deadline that passes ends a request even if nobody reads or writes.
func TestAPauseOfTheServerEndsNoResponse(t *testing.T) {
	t.Parallel()
	got, err := overHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		c := &call{w: w, r: r}
		for range 2 {
			if err := c.send(make([]byte, part)); err != nil {
				t.Error(err)
			}
			time.Sleep(partTime + time.Second/2)
		}
	}, nil)
	if err != nil || len(got) != 2*part {
		t.Errorf("%d bytes arrived: %v", len(got), err)
	}
}

func TestAPauseOfTheServerEndsNoUpload(t *testing.T) {
	t.Parallel()
	sent := bytes.Repeat([]byte("x"), 3*part)
	got, err := overHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		from := &steady{from: r.Body, control: http.NewResponseController(w)}
		first, err := io.ReadAll(io.LimitReader(from, part/2))
		if err != nil {
			t.Error(err)
		}
		time.Sleep(partTime + time.Second/2)
		rest, err := io.ReadAll(from)
		if err != nil {
			t.Errorf("after %d bytes: %v", len(first)+len(rest), err)
		}
		_, _ = w.Write(append(first, rest...))
	}, sent)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes arrived: %v", len(got), len(sent), err)
	}
}

func TestAPartThatArrivesTooSlowlyEndsTheUpload(t *testing.T) {
	t.Parallel()
	slow, drip := io.Pipe()
	ended := make(chan error, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(&steady{from: r.Body, control: http.NewResponseController(w)})
		ended <- err
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	r, err := http.NewRequestWithContext(t.Context(), "PUT", s.URL, slow)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if a, err := s.Client().Do(r); err == nil {
			a.Body.Close()
		}
	}()
	defer drip.Close()
	began := time.Now()
	go func() {
		for { // each byte comes in time, but all of them do not
			if _, err := drip.Write([]byte("x")); err != nil {
				return
			}
			time.Sleep(time.Second / 4)
		}
	}()
	if err := <-ended; err == nil || time.Since(began) > 2*partTime {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
