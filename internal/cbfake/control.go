package cbfake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Order is what whoever runs a cluster in a process of its own wants to go wrong there from now on, and at once.
type Order struct {
	Percent  int           // of the requests are spoilt
	Lag      time.Duration // of the index
	Remember time.Duration // for how long the cluster can forget a write that was not durable

	ForgetLocks bool
	FailOver    int           // so many vbuckets, from From on, forget
	From        int           //
	Last        time.Duration // what was written in so long a time without durability
	Jump        time.Duration // of the clock
}

// control is the path at which a cluster takes orders.
const control = "/cbfake"

// Obey does what an order says.
func (c *Cluster) Obey(o Order) {
	f := Faults{Lag: o.Lag, Remember: o.Remember}
	if o.Percent > 0 {
		f.Request = SpoilSome(o.Percent)
	}
	c.Set(f)
	if o.ForgetLocks {
		c.ForgetLocks()
	}
	for i := range o.FailOver {
		c.FailOver((o.From+i)%vbuckets, o.Last)
	}
	c.JumpClock(o.Jump)
}

// Send gives an order to the cluster of another process, at the address of one of its nodes for queries.
func Send(web string, o Order) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Post("http://"+web+control, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the fake cluster answered %s", answer.Status)
	}
	return nil
}

func (c *Cluster) takeOrder(w http.ResponseWriter, r *http.Request) {
	var o Order
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.Obey(o)
}
