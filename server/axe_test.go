package server_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"sync"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// axe is the source of axe-core, which checks the accessibility of a page.
var axe = sync.OnceValues(func() (string, error) {
	f, err := os.Open("ui/testdata/axe.min.js.gz")
	if err != nil {
		return "", err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(z)
	return string(text), err
})

// Rules of axe, as its options.
const (
	allRules    = `{resultTypes: ["violations"]}`
	colourRules = `{resultTypes: ["violations"], runOnly: ["color-contrast", "link-in-text-block"]}`
	otherRules  = `{resultTypes: ["violations"], rules: {"color-contrast": {enabled: false},
		"link-in-text-block": {enabled: false}}}`
)

// accessible fails if a rule of axe is violated.
func (b *browser) accessible(at string) { b.t.Helper(); b.obeys(at, allRules) }

// obeys fails if one of these rules is violated.
func (b *browser) obeys(at, options string) {
	b.t.Helper()
	script, err := axe()
	if err != nil {
		b.t.Fatal(err)
	}
	var loaded bool
	if b.run(chromedp.Evaluate(`"axe" in window`, &loaded)); !loaded {
		b.run(chromedp.Evaluate(script+";0", nil))
	}
	var found string
	await := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	b.run(chromedp.Evaluate(`(() => {
		const place = (n) => n.html + " " + (n.any[0]?.message ?? "");
		const text = (v) => v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map(place).join(" | ");
		return axe.run(`+options+`).then((r) => JSON.stringify(r.violations.map(text)))
	})()`, &found, await))
	var violations []string
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		b.t.Fatal(err)
	}
	for _, v := range violations {
		b.t.Errorf("%s: %s", at, v)
	}
}
