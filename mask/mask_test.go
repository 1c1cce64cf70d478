package mask

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestMaskedFieldsAreHiddenAtAnyDepth(t *testing.T) {
	m := Mask{Names: Default}
	for text, want := range map[string]string{
		`{"a":1,"password":"x","b":2}`:               `{"a":1,"password": "[hidden]","b":2}`,
		`[{"Auth_TOKEN" : {"deep":[1,2]}}, 3]`:       `[{"Auth_TOKEN": "[hidden]"}, 3]`,
		`{"n":12345678901234567890.10}`:              `{"n":12345678901234567890.10}`,
		`{"pass\u0077ord":"x"}`:                      `{"pass\u0077ord": "[hidden]"}`,
		`{"to":"the secret is out"}`:                 `{"to":"the secret is out"}`,
		`{"secret":`:                                 `"[hidden]"`,
		`{"a":1} {"secret":2}`:                       `"[hidden]"`,
		`{"a":1} "token`:                             `"[hidden]"`,
		`{"token":1}  `:                              `{"token": "[hidden]"}  `,
		`{"x":{"api_key":null,"y":"\""},"cookie":1}`: `{"x":{"api_key": "[hidden]","y":"\""},"cookie": "[hidden]"}`,
	} {
		if got := string(m.JSON([]byte(text))); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	if got := string(Mask{All: true}.JSON([]byte(`{"a":1}`))); got != `"[hidden]"` {
		t.Error(got)
	}
}

func TestResultsOfStepsAreMasked(t *testing.T) {
	m := Mask{Names: Default}
	for text, want := range map[string]string{
		`charge {"id":1,"secret":"x"}`: `charge {"id":1,"secret": "[hidden]"}`,
		`get-token "x"`:                `get-token "[hidden]"`,
		`charge "x"`:                   `charge "x"`,
	} {
		if got := m.Step(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	if got := (Mask{All: true}).Step("charge 1"); got != `charge "[hidden]"` {
		t.Error(got)
	}
}

func TestMaskedJSONIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.MapOf(rapid.SampledFrom([]string{"token", "a", "b\"", "Secret"}),
			rapid.SliceOf(rapid.MapOf(rapid.SampledFrom([]string{"password", "x"}), rapid.String()))).Draw(t, "v")
		text, _ := json.Marshal(v)
		if got := (Mask{Names: Default}).JSON(text); !json.Valid(got) {
			t.Fatalf("%s became %s", text, got)
		}
	})
}
