package payload

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// Check reads JSON and passes it on. Read fails with a *Problem if the text is not one JSON value,
// or is a value that some engine could not store: with invalid UTF-8, a NUL or half a surrogate
// pair, or nested too deeply. Check keeps nothing in memory but the nesting.
type Check struct {
	r       io.Reader
	depth   int
	nested  []byte // '{' or '[', outermost first
	mode    mode
	name    bool   // the string is the name of a field
	literal string // the rest of true, false or null
	partial []byte // bytes of an incomplete character
	digits  int    // hexadecimal digits read so far in an escape
	code    rune   // the value of those digits
	high    bool   // the previous escape was the first half of a surrogate pair
	at      int64
}

// Problem is what is wrong with JSON.
type Problem struct {
	Code string // invalid_json, invalid_utf8, nul_not_allowed, json_too_complex
	Text string
}

func (p *Problem) Error() string { return p.Text }

// mode says what may come next.
type mode int8

const (
	atValue mode = iota
	atFirst      // an element of an array, or its end
	atField
	atFirstField // a field of an object, or its end
	atColon
	atNext // a comma, or the end of the enclosing value
	inString
	inEscape
	inCode // four hexadecimal digits
	inLiteral
	inMinus // the modes from here on are in a number, named by the latest character
	inZero
	inDigits
	inPoint
	inFraction
	inExponent
	inSign
	inPower
)

// NewCheck returns a Check that reads from r and allows depth levels of nesting.
func NewCheck(r io.Reader, depth int) *Check { return &Check{r: r, depth: depth} }

// Read implements io.Reader.
func (c *Check) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	for _, b := range p[:n] {
		if c.mode == inString && b >= ' ' && b < utf8.RuneSelf && b != '"' && b != '\\' && !c.high && len(c.partial) == 0 {
			c.at++
			continue
		}
		if problem := c.step(b); problem != nil {
			return 0, problem
		}
		c.at++
	}
	if err == io.EOF && (len(c.nested) > 0 || c.mode != atNext && !c.numberMayEnd()) {
		return 0, c.wrong("ends too soon")
	}
	return n, err
}

func (c *Check) wrong(format string, args ...any) error {
	return &Problem{"invalid_json", fmt.Sprintf("is not one JSON value: at byte %d: ", c.at) +
		fmt.Sprintf(format, args...)}
}

func (c *Check) numberMayEnd() bool {
	return c.mode == inZero || c.mode == inDigits || c.mode == inFraction || c.mode == inPower
}

func (c *Check) step(b byte) error {
	switch {
	case c.mode <= atNext:
		if b == ' ' || b == '\t' || b == '\n' || b == '\r' {
			return nil
		}
		return c.between(b)
	case c.mode <= inCode:
		return c.inText(b)
	case c.mode == inLiteral:
		if b != c.literal[0] {
			return c.wrong("%q", b)
		}
		if c.literal = c.literal[1:]; c.literal == "" {
			c.mode = atNext
		}
		return nil
	}
	return c.inNumber(b)
}

// between handles a byte outside of strings, literals and numbers.
func (c *Check) between(b byte) error {
	switch c.mode {
	case atFirst:
		if b == ']' {
			return c.leave()
		}
		fallthrough
	case atValue:
		return c.begin(b)
	case atFirstField:
		if b == '}' {
			return c.leave()
		}
		fallthrough
	case atField:
		if b == '"' {
			c.mode, c.name = inString, true
			return nil
		}
	case atColon:
		if b == ':' {
			c.mode = atValue
			return nil
		}
	case atNext:
		switch {
		case b == ',' && c.in('['):
			c.mode = atValue
			return nil
		case b == ',' && c.in('{'):
			c.mode = atField
			return nil
		case b == ']' && c.in('['), b == '}' && c.in('{'):
			return c.leave()
		}
	}
	return c.wrong("%q", b)
}

func (c *Check) in(what byte) bool { return len(c.nested) > 0 && c.nested[len(c.nested)-1] == what }

func (c *Check) leave() error {
	c.nested, c.mode = c.nested[:len(c.nested)-1], atNext
	return nil
}

// begin handles the first byte of a value.
func (c *Check) begin(b byte) error {
	switch b {
	case '{', '[':
		if len(c.nested) == c.depth {
			return &Problem{"json_too_complex", fmt.Sprintf("is nested deeper than %d levels", c.depth)}
		}
		if c.nested, c.mode = append(c.nested, b), atFirst; b == '{' {
			c.mode = atFirstField
		}
	case '"':
		c.mode, c.name = inString, false
	case 't':
		c.mode, c.literal = inLiteral, "rue"
	case 'f':
		c.mode, c.literal = inLiteral, "alse"
	case 'n':
		c.mode, c.literal = inLiteral, "ull"
	case '-':
		c.mode = inMinus
	case '0':
		c.mode = inZero
	default:
		if b < '1' || b > '9' {
			return c.wrong("%q", b)
		}
		c.mode = inDigits
	}
	return nil
}

// inText handles a byte inside a string.
func (c *Check) inText(b byte) error {
	switch c.mode {
	case inEscape:
		if b == 'u' {
			c.mode, c.digits, c.code = inCode, 0, 0
			return nil
		}
		if c.mode = inString; c.high {
			return c.lone()
		}
		switch b {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			return nil
		}
		return c.wrong("the escape %q", b)
	case inCode:
		return c.hex(b)
	}
	switch {
	case b < ' ':
		return c.wrong("a control character")
	case b >= utf8.RuneSelf && !c.high:
		return c.rune(b)
	case len(c.partial) > 0:
		return &Problem{"invalid_utf8", "is not valid UTF-8"}
	case b == '\\':
		c.mode = inEscape
	case c.high:
		return c.lone()
	case b == '"':
		if c.mode = atNext; c.name {
			c.mode = atColon
		}
	}
	return nil
}

func (c *Check) rune(b byte) error {
	c.partial = append(c.partial, b)
	if !utf8.FullRune(c.partial) {
		return nil
	}
	r, size := utf8.DecodeRune(c.partial)
	if r == utf8.RuneError && size == 1 {
		return &Problem{"invalid_utf8", "is not valid UTF-8"}
	}
	c.partial = c.partial[:0]
	return nil
}

func (c *Check) lone() error {
	return &Problem{"invalid_utf8", "has half a surrogate pair"}
}

func (c *Check) hex(b byte) error {
	switch {
	case '0' <= b && b <= '9':
		c.code = c.code<<4 | rune(b-'0')
	case 'a' <= b && b <= 'f':
		c.code = c.code<<4 | rune(b-'a'+10)
	case 'A' <= b && b <= 'F':
		c.code = c.code<<4 | rune(b-'A'+10)
	default:
		return c.wrong("the escape of %q", b)
	}
	if c.digits++; c.digits < 4 {
		return nil
	}
	c.mode = inString
	low := 0xDC00 <= c.code && c.code <= 0xDFFF
	switch {
	case c.code == 0:
		return &Problem{"nul_not_allowed", `has the character \u0000, which not every database can store`}
	case low != c.high:
		return c.lone()
	}
	c.high = 0xD800 <= c.code && c.code <= 0xDBFF
	return nil
}

// inNumber handles a byte inside a number, or the byte after it.
func (c *Check) inNumber(b byte) error {
	digit, exponent := '0' <= b && b <= '9', b == 'e' || b == 'E'
	switch m := c.mode; {
	case digit && m == inMinus && b == '0':
		c.mode = inZero
	case digit && (m == inMinus || m == inDigits):
		c.mode = inDigits
	case digit && (m == inPoint || m == inFraction):
		c.mode = inFraction
	case digit && (m == inExponent || m == inSign || m == inPower):
		c.mode = inPower
	case b == '.' && (m == inZero || m == inDigits):
		c.mode = inPoint
	case exponent && (m == inZero || m == inDigits || m == inFraction):
		c.mode = inExponent
	case (b == '+' || b == '-') && m == inExponent:
		c.mode = inSign
	case c.numberMayEnd() && !digit:
		c.mode = atNext
		return c.step(b)
	default:
		return c.wrong("%q", b)
	}
	return nil
}
