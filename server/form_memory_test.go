package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store/memory"
)

// stalled is a body that is read in part, and then waits until it is released.
type stalled struct {
	begun chan<- struct{}
	goOn  <-chan struct{}
}

func (s stalled) Read([]byte) (int, error) {
	s.begun <- struct{}{}
	<-s.goOn
	return 0, os.ErrDeadlineExceeded
}

// formSite returns a server without a network, and a producer's token.
func formSite(t *testing.T) (s *Server, producer string) {
	t.Helper()
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = New(client, Config{}); err != nil {
		t.Fatal(err)
	}
	producer, _, err = s.Book().CreateToken(t.Context(), access.Token{Name: "p", Role: access.Producer}, "test")
	if err != nil {
		t.Fatal(err)
	}
	return s, producer
}

func sendForm(
	t *testing.T, s *Server, token, method, path string, body io.Reader, size int64, kind string,
) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, body)
	r.ContentLength = size
	r.Header.Set("Content-Type", kind)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

const plainForm = "application/x-www-form-urlencoded"

func TestLargeFormsWaitForTheirMemoryBeforeTheyAreRead(t *testing.T) {
	s, producer := formSite(t)
	const n, size = 10, 4<<20 - 1
	begun, goOn, statuses := make(chan struct{}, n), make(chan struct{}), make(chan int, n)
	for i := range n {
		go func() {
			length := int64(size)
			if i%2 == 0 {
				length = -1
			}
			statuses <- sendForm(t, s, producer, "POST", "/tasks/new", stalled{begun, goOn}, length, plainForm).Code
		}()
	}
	<-begun
	<-begun
	form := url.Values{"kind": {"k"}, "args": {"{}"}}.Encode()
	if w := sendForm(t, s, producer, "POST", "/tasks/new", strings.NewReader(form), int64(len(form)),
		plainForm); w.Code != http.StatusSeeOther {
		t.Errorf("a small form beside large ones: %d %s", w.Code, w.Body)
	}
	select {
	case <-begun:
		t.Errorf("a third form of 4 MiB is read, with memory for 8 MiB")
	case <-time.After(200 * time.Millisecond):
	}
	s.rooms.memory.mu.Lock()
	taken := s.rooms.memory.taken
	s.rooms.memory.mu.Unlock()
	if taken < 2*bodyCost*size {
		t.Errorf("two large forms have %d bytes of memory", taken)
	}
	close(goOn)
	for range n {
		if status := <-statuses; status != http.StatusRequestTimeout {
			t.Errorf("a form that took too long: %d", status)
		}
	}
	if s.rooms.memory.taken != 0 {
		t.Errorf("%d bytes of memory were not given back", s.rooms.memory.taken)
	}
}

// counted is an endless body that counts what is read.
type counted struct{ n int }

func (c *counted) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	c.n += len(b)
	return len(b), nil
}

func TestLittleIsReadOfWhatNobodyKnownSends(t *testing.T) {
	s, _ := formSite(t)
	for _, c := range []struct {
		method, path, kind string
		want               int
	}{
		{"POST", "/login", plainForm, http.StatusRequestEntityTooLarge},
		{"POST", "/theme", plainForm, http.StatusRequestEntityTooLarge},
		{"POST", "/login", "multipart/form-data; boundary=x", http.StatusUnsupportedMediaType},
		{"GET", "/login", "multipart/form-data; boundary=x", http.StatusOK},
	} {
		body := &counted{}
		begun := strings.NewReader("--x\r\nContent-Disposition: form-data; name=next\r\n\r\n")
		w := sendForm(t, s, "", c.method, c.path, io.MultiReader(begun, body), -1, c.kind)
		if w.Code != c.want || body.n > 64<<10 {
			t.Errorf("%+v: %d; %d bytes were read", c, w.Code, body.n)
		}
	}
}

func TestALargeFormIsReadInPartsWithDeadlines(t *testing.T) {
	s := &Server{rooms: newRooms(8<<20, runtime.GOMAXPROCS(0))}
	w, text := &deadlines{}, strings.Repeat("x", 3*part+1)
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(text))
	giveBack, err := s.receiveForm(w, r, access.Identity{ID: "p"}, 4<<20)
	if err != nil || giveBack == nil {
		t.Fatal(err)
	}
	defer giveBack()
	got, err := io.ReadAll(r.Body)
	if n := len(w.read); err != nil || string(got) != text || n < 4 || !w.read[n-1].IsZero() {
		t.Errorf("%d bytes with the deadlines %v, %v", len(got), w.read, err)
	}
}

func TestABodyOfTheAPIThatIsTooSlowSaysSo(t *testing.T) {
	s, producer := formSite(t)
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	close(goOn)
	w := sendForm(t, s, producer, "POST", "/api/v1/tasks", stalled{begun, goOn}, 10, "application/json")
	if w.Code != http.StatusRequestTimeout || !strings.Contains(w.Body.String(), "body_too_slow") {
		t.Errorf("a body that took too long: %d %s", w.Code, w.Body)
	}
}

func TestABodyThatIsParsedForTooLongSaysSo(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var v any
	p := problemOf(decodeStrict(over, []byte("["+strings.Repeat("0,", 5000)+"0]"), nil, &v))
	if p.Status != http.StatusRequestTimeout || p.Code != "body_too_slow" {
		t.Errorf("%d %s", p.Status, p.Code)
	}
}
