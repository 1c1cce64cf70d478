//go:build unix

package storm

import "time"

// steps checks I25: a step does not run again after its result was stored, and every attempt gets that result. If the
// lease may have ended before, it is not known whether the result was stored.
func (c *checker) steps(p *past) {
	if p.retried() > 0 {
		return // a task that has completed begins with its first step again
	}
	stored := map[string]event{} // by name
	for _, e := range p.steps {
		it := e.Items[0]
		first, known := stored[it.Key]
		switch {
		case !known:
			if e.Op == opStepped && !c.lapsed(e.At) && c.keeps(p, it.Token, e.At) {
				stored[it.Key] = e
			}
		case e.Op == opStep && c.keeps(p, it.Token, e.At):
			c.violation("I25", "task %s: step %s ran again %v after its result was stored", p.id, it.Key,
				time.Duration(e.At-first.At))
		case e.Op == opStepped && it.Part != first.Items[0].Part && c.keeps(p, it.Token, e.At):
			c.violation("I25", "task %s: step %s has two results", p.id, it.Key)
		}
	}
}

// keeps reports whether a lease was certainly open at a time.
func (c *checker) keeps(p *past, token string, at int64) bool {
	for _, l := range p.claims {
		if l.Token == token {
			return c.over(p, l) > at
		}
	}
	return false
}
