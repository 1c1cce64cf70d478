package ui

import "net/url"

// confirmation asks before an action that cannot be undone.
type confirmation struct {
	Question, Detail, Button string
	Action                   string // where the form is sent
	Fields                   url.Values
	Type                     string // text that has to be typed; empty if none
	Retry                    bool   // asks for a pace and a time
	RetryAt                  string // as it was entered before
	Back                     string
}
