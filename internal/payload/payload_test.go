package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/tuskqueue/tusk/store"
)

func TestAReferenceIsReadBackAndNothingElseIsOne(t *testing.T) {
	task, own := store.ID{1, 2}, store.ID{3}
	r := Ref{Object: Name(task, own, time.Unix(1e9, 0)), Skip: 40, Bytes: 7, SHA256: strings.Repeat("0a", 32),
		Key: json.RawMessage(`{"k":1}`)}
	text, err := r.Text()
	if err != nil {
		t.Fatal(err)
	}
	got := Parse(text)
	if got == nil || got.Object != r.Object || got.Bytes != 7 || string(got.Key) != `{"k":1}` || !Reserved(text) {
		t.Fatalf("%s is read as %+v", text, got)
	}
	if id, ok := TaskOf(got.Object); !ok || id != task {
		t.Errorf("its task is %v", id)
	}
	for _, other := range []string{`{}`, `{"$payload":null}`, `{"$payload":{}}`,
		`{"$payload":{"object":"../x","skip":1,"sha256":"` + r.SHA256 + `"}}`,
		`{ "$payload":` + string(text[len(`{"$payload":`):]), strings.Replace(string(text), `"skip":40`, `"skip":0`, 1)} {
		if Parse([]byte(other)) != nil {
			t.Errorf("%s is taken for a reference", other)
		}
	}
}

func TestAHeaderIsReadBack(t *testing.T) {
	h := Header{Task: store.ID{1}, By: store.ID{2}, Key: strings.Repeat("\U0001F600", 60)}
	line, err := h.Line()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadHeader(io.MultiReader(bytes.NewReader(line), strings.NewReader("{}")))
	if h.Version = 1; err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "{}", "{}\n", "x\n", `{"tusk_payload":2}` + "\n"} {
		if h, err := ReadHeader(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, h)
		}
	}
}

func TestWhatIsEncryptedIsReadFromAnywhereAndChangedByNobody(t *testing.T) {
	key := NewKey()
	for _, n := range []int{0, 1, Piece - 1, Piece, Piece + 1, 3*Piece + 17} {
		clear := bytes.Repeat([]byte("0123456789abcdef-"), n/17+1)[:n]
		sealed := all(t, encrypted(t, iotest.HalfReader(bytes.NewReader(clear)), key))
		if n > 16 && bytes.Contains(sealed, clear[:17]) {
			t.Fatalf("%d bytes are in the clear", n)
		}
		for number := range uint64(n/Piece + 1) {
			at := Offset(number)
			if number > 0 && at >= int64(len(sealed)) {
				break
			}
			if got := all(t, decrypted(t, iotest.OneByteReader(bytes.NewReader(sealed[at:])), key, number)); !bytes.Equal(got,
				clear[int(number)*Piece:]) {
				t.Errorf("%d bytes, from piece %d: %d bytes are read", n, number, len(got))
			}
		}
		for _, cut := range []int{1, tagSize, Piece + tagSize} {
			if cut <= len(sealed) {
				refuse(t, decrypted(t, bytes.NewReader(sealed[:len(sealed)-cut]), key, 0))
			}
		}
		sealed[len(sealed)/2] ^= 1
		refuse(t, decrypted(t, bytes.NewReader(sealed), key, 0))
	}
}

func encrypted(t *testing.T, r io.Reader, key []byte) io.Reader {
	t.Helper()
	e, err := Encrypt(r, key)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func decrypted(t *testing.T, r io.Reader, key []byte, number uint64) io.Reader {
	t.Helper()
	d, err := Decrypt(r, key, number)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func all(t *testing.T, r io.Reader) []byte {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func refuse(t *testing.T, r io.Reader) {
	t.Helper()
	if _, err := io.ReadAll(r); !errors.Is(err, ErrDamaged) {
		t.Errorf("a changed object is read: %v", err)
	}
}

func TestProblemsOfJSONAreFound(t *testing.T) {
	for text, code := range map[string]string{
		`{"a":[1,-0.5e+7,true,null,"\u00e9\uD83D\ude00é"], "b" : {}} `: "",
		`0`: "", `"x"`: "", ` [] `: "", `12e3`: "",
		``: "invalid_json", `{"a":1`: "invalid_json", `01`: "invalid_json", `1 2`: "invalid_json", `-`: "invalid_json",
		`1.`:   "invalid_json",
		`[1,]`: "invalid_json", `{,}`: "invalid_json", `tru`: "invalid_json", `"a`: "invalid_json", "\"\n\"": "invalid_json",
		`"\x"`:     "invalid_json",
		"\"\xff\"": "invalid_utf8", "\"\xc3\"": "invalid_utf8", `"\ud800"`: "invalid_utf8", `"\ud800x"`: "invalid_utf8",
		`"\ud800\n"`: "invalid_utf8",
		`"\udc00"`:   "invalid_utf8", `"\u0000"`: "nul_not_allowed", `[[[[1]]]]`: "json_too_complex",
	} {
		_, err := io.ReadAll(NewCheck(strings.NewReader(text), 3))
		problem := new(Problem)
		if errors.As(err, &problem); problem.Code != code || code == "" && err != nil {
			t.Errorf("%s: %v, want %q", text, err, code)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, text := range []string{`{"a":[1,2.5e-3,"\ud83d\ude00"]}`, `[true,false,null]`, `"é"`, `-0`, `{"a":{"b":[]}}`,
		`0e`, `"\u12"`, "\xef\xbf\xbd"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := io.ReadAll(NewCheck(iotest.OneByteReader(bytes.NewReader(text)), 1<<20))
		if err == nil && (!json.Valid(text) || !utf8.Valid(text) || !bytes.Equal(got, text)) {
			t.Errorf("%q is taken for JSON", text)
		}
		problem := new(Problem)
		if errors.As(err, &problem) && problem.Code == "invalid_json" && json.Valid(text) && utf8.Valid(text) {
			t.Errorf("%q is refused: %v", text, err)
		}
	})
}
