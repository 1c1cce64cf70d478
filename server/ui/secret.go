package ui

// newSecret is a secret that was just created.
type newSecret struct {
	Section string // the page to which the visitor returns
	Title   string
	Use     string // what uses the secret, in a sentence
	Secret  string
}

// show shows a new secret on a page of its own. This is the only time that anybody can see it, so nothing is read from
// the database for the page: an error would lose the secret.
func show(s newSecret) answer {
	return answer{page: "secret", title: s.Title, section: s.Section, data: s}
}
