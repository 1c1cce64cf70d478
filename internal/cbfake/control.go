package cbfake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Order tells a cluster in another process what should go wrong from now on (the faults) and what
// should happen at once.
type Order struct {
	Percent  int           // share of the requests to spoil
	Lag      time.Duration // of the index
	Remember time.Duration // how long the cluster can forget a write that was not durable

	ForgetLocks bool
	FailOver    int           // this number of vbuckets, from From on, fail over
	From        int           // the first of them
	Last        time.Duration // they lose what was written without durability in this last time
	Jump        time.Duration // how far the clock jumps
}

// control is the path at which a cluster accepts orders.
const control = "/cbfake"

// Obey carries out an order.
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

// Send sends an order to the cluster of another process. web is the query address of one of its
// nodes.
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
