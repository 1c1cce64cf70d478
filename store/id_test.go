package store

import (
	"encoding/json"
	"testing"
)

func TestIDsSurviveTheirTextForm(t *testing.T) {
	const text = "0193e4a0-6c1f-7d3a-9c59-1f0a2b3c4d5e"
	id, err := ParseID(text)
	if err != nil || id.String() != text {
		t.Fatal(id, err)
	}
	out, err := json.Marshal(map[string]ID{"id": id})
	if err != nil || string(out) != `{"id":"`+text+`"}` {
		t.Error(string(out), err)
	}
	for _, bad := range []string{"", "1", text[:35], text + "0", "0193e4a0x6c1f-7d3a-9c59-1f0a2b3c4d5e",
		"g193e4a0-6c1f-7d3a-9c59-1f0a2b3c4d5e", "'; drop table task; --              "} {
		if _, err := ParseID(bad); err != ErrBadID {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestStatesSurviveTheirNames(t *testing.T) {
	for _, s := range States() {
		if back, err := ParseState(s.String()); back != s || err != nil {
			t.Error(s, back, err)
		}
	}
	if _, err := ParseState("done"); err == nil {
		t.Error("an unknown state is accepted")
	}
	if State(0).String() != "state(0)" || State(99).String() != "state(99)" {
		t.Error(State(0), State(99))
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("0193e4a0-6c1f-7d3a-9c59-1f0a2b3c4d5e")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseID(text)
		if err == nil {
			if again, err := ParseID(id.String()); again != id || err != nil {
				t.Error(text, id, again, err)
			}
		}
	})
}
