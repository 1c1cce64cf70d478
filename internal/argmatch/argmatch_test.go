package argmatch

import (
	"testing"
)

func TestASearchFindsTextAndValues(t *testing.T) {
	const args = `{"order": {"id": 17, "code":"A-1", "lines":[{"sku":"x9"}]}, "to":"Ada@example.com", ` +
		`"paid": true, "none":null}`
	for text, want := range map[string]bool{
		"ada@EXAMPLE": true, `"id":17`: true, `"id": 17`: true, "17": true, "18": false, "order.id=17": true,
		"order.id=1": false, "order.id=": false,
		"order.code=A-1": true, "order.code=a-1": false, "order.lines.0.sku=x9": true, "order.lines.1.sku=x9": false,
		"to=Ada@example.com": true,
		"paid=true":          true, "none=null": true, "missing=": false, "missing=null": false, "order.id.more=17": false,
		"=": false, "a=b=c": false,
	} {
		if got := Matcher(text)([]byte(args)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	for _, args := range []string{"", "x", "[1,2]", `"text"`, "{"} {
		Matcher("a.b=1")([]byte(args))
	}
	if !Matcher("x=a=b")([]byte(`{"x":"a=b"}`)) {
		t.Error("a value with = is not found")
	}
}
