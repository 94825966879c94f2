package flue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/memstore"
)

// An exampleRun is an agent named demo on a scripted model, with a store that
// outlives its process.
type exampleRun struct {
	render func(r *flue.Render) string
	turns  func(req *model.Request) script.Turn
	store  *memstore.Store
	rt     *flue.Runtime
	*flue.Instance
}

func newExample(render func(r *flue.Render) string, turns func(req *model.Request) script.Turn) *exampleRun {
	e := &exampleRun{render: render, turns: turns, store: memstore.New()}
	e.open()
	return e
}

func (e *exampleRun) open() {
	rt, err := flue.Open(context.Background(), flue.Config{
		Agents:    []*flue.Agent{{Name: "demo", Render: e.render}},
		Providers: map[string]model.Provider{"demo": script.New(script.Func(e.turns))},
		Store:     e.store,
	})
	if err != nil {
		log.Fatal(err)
	}
	e.rt, e.Instance = rt, rt.Instance("demo", "one")
}

func (e *exampleRun) close() {
	if err := e.rt.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// die ends the process at once and begins another on the same store.
func (e *exampleRun) die() {
	e.store = e.store.Reopen()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.rt.Close(ctx); err != nil {
		log.Fatal(err)
	}
	e.open()
}

func (e *exampleRun) send(m flue.Message) string {
	receipt, err := e.Dispatch(context.Background(), m)
	if err != nil {
		log.Fatal(err)
	}
	return receipt.Submission
}

func (e *exampleRun) reply(submission string) *flue.Reply {
	reply, err := e.Read(context.Background(), submission)
	if err != nil {
		log.Fatal(err)
	}
	return reply
}

func (e *exampleRun) say(m flue.Message) string { return e.reply(e.send(m)).Text }

// latest is the text of the newest block that the model sees.
func latest(req *model.Request) string {
	blocks := req.Messages[len(req.Messages)-1].Blocks
	return blocks[len(blocks)-1].Text
}

// What the agent should know when it begins with a message is looked up before
// the model reads the message.
func ExampleUseAgentStart() {
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		customer := flue.UseDelivery(r).Attributes["customer"]
		flue.UseAgentStart(r, func(_ context.Context, s *flue.AgentStart) error {
			if customer == "" {
				return nil
			}
			return s.Append(flue.Signal("customer", "A customer since 2019.", map[string]string{"id": customer}))
		})
		return "Help customers."
	}, func(req *model.Request) script.Turn {
		return script.Say("I have read: " + latest(req))
	})
	defer demo.close()

	fmt.Println(demo.say(flue.Signal("mail", "Where is my order?", map[string]string{"customer": "c-7"})))
	// Output:
	// I have read: <signal type="customer" id="c-7">
	// A customer since 2019.
	// </signal>
}

// The hook looks at what the response has done, and sends the model back to work
// while something is missing.
func ExampleUseAgentFinish() {
	check := flue.NewTool(flue.Tool{Name: "run_tests", Description: "Run the tests."},
		func(context.Context, struct{}) (string, error) { return "all pass", nil })
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		flue.UseTool(r, check)
		flue.UseAgentFinish(r, func(_ context.Context, f *flue.AgentFinish) error {
			for _, call := range f.ToolCalls {
				if call.Tool == "run_tests" && !call.Failed {
					return nil
				}
			}
			return f.Append(flue.Signal("unfinished", "Run the tests before you are done.", nil))
		})
		return "Fix the bug."
	}, func(req *model.Request) script.Turn {
		switch text := latest(req); {
		case strings.Contains(text, "unfinished"):
			return script.Call("run_tests", "{}")
		case text == "all pass":
			return script.Say("Done, and all tests pass.")
		}
		return script.Say("Done.")
	})
	defer demo.close()

	fmt.Println(demo.say(flue.User("Fix it.")))
	// Output:
	// Done.
	//
	// Done, and all tests pass.
}

// Metadata is for clients. The model never sees it.
func ExampleUseResponseFinish() {
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		flue.UseResponseStart(r, func(context.Context, *flue.ResponseStart) (flue.Metadata, error) {
			return flue.Metadata{"cost": map[string]any{"currency": "EUR"}}, nil
		})
		flue.UseResponseFinish(r, func(_ context.Context, f *flue.ResponseFinish) (flue.Metadata, error) {
			return flue.Metadata{"cost": map[string]any{"calls": len(f.ToolCalls)}}, nil
		})
		return ""
	}, func(*model.Request) script.Turn { return script.Say("hello") })
	defer demo.close()

	fmt.Println(demo.reply(demo.send(flue.User("hi"))).Metadata["cost"])
	// Output: map[calls:0 currency:EUR]
}

// A tool shows clients how far it is. The model sees its result only.
func ExampleUseDataWriter() {
	type progress struct {
		Done  int `json:"done"`
		Total int `json:"total"`
	}
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		bar := flue.UseDataWriter[progress](r, "import")
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "import_rows", Description: "Import the rows."},
			func(ctx context.Context, _ struct{}) (string, error) {
				for n := range 3 {
					if err := bar.Write(ctx, progress{n + 1, 3}); err != nil {
						return "", err
					}
				}
				return "imported", nil
			}))
		return ""
	}, func(req *model.Request) script.Turn {
		if script.Step(req) == 0 {
			return script.Call("import_rows", "{}")
		}
		return script.Say("They are in.")
	})
	defer demo.close()

	reply := demo.reply(demo.send(flue.User("Import them.")))
	fmt.Println(reply.Text)
	fmt.Println(string(reply.Data["import"][2]))
	// Output:
	// They are in.
	// {"done":3,"total":3}
}

// An agent that sends a message to itself: it joins the response that is under
// way.
func ExampleUseDispatchMessage() {
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		dispatch := flue.UseDispatchMessage(r)
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "hand_over", Description: "Hand the matter over to billing."},
			func(ctx context.Context, _ struct{}) (string, error) {
				_, err := dispatch(ctx, flue.Signal("handover", "Billing takes over.", nil),
					flue.DispatchOptions{IdempotencyKey: flue.CallKey(ctx)})
				return "handed over", err
			}))
		return ""
	}, func(req *model.Request) script.Turn {
		if strings.Contains(latest(req), "handover") {
			return script.Say("Hello, this is billing.")
		}
		return script.Call("hand_over", "{}")
	})
	defer demo.close()

	fmt.Println(demo.say(flue.User("My invoice is wrong.")))
	// Output: Hello, this is billing.
}

// The process dies in the middle of a durable tool. The next one runs the call
// again and takes what the steps have recorded.
func ExampleNewDurableTool() {
	type input struct {
		Customer string `json:"customer"`
	}
	first, inStep := true, make(chan bool)
	provision := flue.NewDurableTool(flue.Tool{Name: "provision", Description: "Provision a workspace for a customer."},
		func(ctx context.Context, step *flue.Step, in input) (string, error) {
			tenant, err := flue.Do(ctx, step, "create-tenant", func(context.Context) (string, error) {
				fmt.Println("creating a tenant for", in.Customer)
				return "t-1", nil
			})
			if err != nil {
				return "", err
			}
			for _, project := range []string{"docs", "web"} {
				if _, err := flue.Do(ctx, step, "seed:"+project, func(ctx context.Context) (bool, error) {
					fmt.Println("seeding", project)
					if project == "web" && first { // the first run comes no further
						first = false
						close(inStep)
						<-ctx.Done()
					}
					return true, ctx.Err()
				}); err != nil {
					return "", err
				}
			}
			return tenant, nil
		})
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		flue.UseTool(r, provision)
		return ""
	}, func(req *model.Request) script.Turn {
		if script.Step(req) == 0 {
			return script.Call("provision", input{"acme"})
		}
		return script.Say("ready: " + latest(req))
	})
	defer func() { demo.close() }()

	submission := demo.send(flue.User("Set acme up."))
	<-inStep
	fmt.Println("(the process dies)")
	demo.die()
	fmt.Println(demo.reply(submission).Text)
	// Output:
	// creating a tenant for acme
	// seeding docs
	// seeding web
	// (the process dies)
	// seeding web
	// ready: t-1
}

// The name of a step says which piece of work it is. What it returned is there
// again when the call is run again, typed as before.
func ExampleDo() {
	sum := flue.NewDurableTool(flue.Tool{Name: "sum_up", Description: "Add the sales of two regions up."},
		func(ctx context.Context, step *flue.Step, _ struct{}) (int, error) {
			sales := make(map[string]int)
			for _, region := range []string{"north", "south"} {
				n, err := flue.Do(ctx, step, "sales:"+region, func(context.Context) (int, error) {
					return len(region) * 100, nil // ask the region's system
				})
				if err != nil {
					return 0, err
				}
				sales[region] = n
			}
			return sales["north"] + sales["south"], nil
		})
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		flue.UseTool(r, sum)
		return ""
	}, func(req *model.Request) script.Turn {
		if script.Step(req) == 0 {
			return script.Call("sum_up", "{}")
		}
		return script.Say("sales: " + latest(req))
	})
	defer demo.close()

	fmt.Println(demo.say(flue.User("How much did we sell?")))
	// Output: sales: 1000
}

// A letter must not be sent twice, and the post office takes no idempotency key.
func ExampleDoOnce() {
	inStep := make(chan bool)
	send := flue.NewDurableTool(flue.Tool{Name: "send_letter", Description: "Send the letter."},
		func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
			_, err := flue.DoOnce(ctx, step, "post", func(ctx context.Context) (bool, error) {
				fmt.Println("posting the letter")
				close(inStep)
				<-ctx.Done()
				return true, ctx.Err()
			})
			if errors.Is(err, flue.ErrOutcomeUnknown) {
				return "It is not known whether the letter was sent: ask the post office.", nil
			}
			return "sent", err
		})
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		flue.UseTool(r, send)
		return ""
	}, func(req *model.Request) script.Turn {
		if script.Step(req) == 0 {
			return script.Call("send_letter", "{}")
		}
		return script.Say(latest(req))
	})
	defer func() { demo.close() }()

	submission := demo.send(flue.User("Send it."))
	<-inStep
	fmt.Println("(the process dies)")
	demo.die()
	fmt.Println(demo.reply(submission).Text)
	// Output:
	// posting the letter
	// (the process dies)
	// It is not known whether the letter was sent: ask the post office.
}

// A release is published when somebody has approved it, days later if need be.
func ExampleUseApprovalGate() {
	type input struct {
		Version string `json:"version"`
	}
	publish := flue.NewTool(flue.Tool{Name: "publish_release", Description: "Publish a release."},
		func(_ context.Context, in input) (string, error) { return "published " + in.Version, nil })
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		flue.UseApprovalGate(r, publish, flue.ApprovalPolicy{})
		return "Prepare releases."
	}, func(req *model.Request) script.Turn {
		if text := latest(req); strings.Contains(text, "approval_result") {
			return script.Say("It is out.")
		}
		return script.Call("publish_release", input{"1.0.0"})
	})
	defer demo.close()

	ctx := context.Background()
	fmt.Printf("reply: %q\n", demo.say(flue.User("Release 1.0.0."))) // the turn ends with the call
	waiting, err := demo.Approvals(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("waiting:", waiting[0].Tool, string(waiting[0].Arguments))

	receipt, err := demo.Decide(ctx, waiting[0].ID, flue.Decision{Approve: true, By: "Dana"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("reply:", demo.reply(receipt.Submission).Text)
	// Output:
	// reply: ""
	// waiting: publish_release {"version":"1.0.0"}
	// reply: It is out.
}

// The first decision counts, and who decides late is told.
func ExampleInstance_Decide() {
	drop := flue.NewTool(flue.Tool{Name: "drop_table", Description: "Drop the table."},
		func(context.Context, struct{}) (string, error) { return "dropped", nil })
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		flue.UseApprovalGate(r, drop, flue.ApprovalPolicy{})
		return ""
	}, func(req *model.Request) script.Turn {
		if text := latest(req); strings.Contains(text, "approval_result") {
			return script.Say(text)
		}
		return script.Call("drop_table", "{}")
	})
	defer demo.close()

	ctx := context.Background()
	demo.say(flue.User("Clean up."))
	waiting, err := demo.Approvals(ctx)
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := demo.Decide(ctx, waiting[0].ID, flue.Decision{By: "Dana", Reason: "not on a Friday"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(demo.reply(receipt.Submission).Text, "Dana denied the call"))

	_, err = demo.Decide(ctx, waiting[0].ID, flue.Decision{Approve: true, By: "Robin"})
	fmt.Println(errors.Is(err, &flue.Error{Code: flue.CodeSubmissionConflict}))
	// Output:
	// true
	// true
}

// Small refunds need nobody's approval.
func ExampleApproveIf() {
	type input struct {
		Cents int `json:"cents" min:"1"`
	}
	refund := flue.NewTool(flue.Tool{Name: "refund", Description: "Refund an amount."},
		func(_ context.Context, in input) (string, error) {
			return fmt.Sprintf("refunded %d cents", in.Cents), nil
		})
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		flue.UseApprovalGate(r, refund, flue.ApprovalPolicy{
			Needed: flue.ApproveIf(func(in input) bool { return in.Cents > 10_000 }),
		})
		return ""
	}, func(req *model.Request) script.Turn {
		if text := latest(req); strings.HasPrefix(text, "refunded") {
			return script.Say(text)
		}
		return script.Call("refund", input{250})
	})
	defer demo.close()

	fmt.Println(demo.say(flue.User("It was broken.")))
	// Output: refunded 250 cents
}

// The customer is bound by whoever sent the signal. The model cannot choose
// another one.
func ExampleUseDelivery() {
	type input struct {
		Order string `json:"order"`
	}
	orders := map[string]string{"c-7/o-1": "shipped", "c-8/o-1": "lost"}
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		customer := flue.UseDelivery(r).Attributes["customer"]
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "lookup_order", Description: "Look one of the customer's orders up."},
			func(_ context.Context, in input) (string, error) {
				status, ok := orders[customer+"/"+in.Order]
				if !ok {
					return "No order of that number.", nil
				}
				return status, nil
			}))
		return "Help this customer."
	}, func(req *model.Request) script.Turn {
		if script.Step(req) == 0 {
			return script.Call("lookup_order", input{"o-1"})
		}
		return script.Say(latest(req))
	})
	defer demo.close()

	fmt.Println(demo.say(flue.Signal("mail", "Where is o-1?", map[string]string{"customer": "c-7"})))
	fmt.Println(demo.say(flue.User("I am c-7. Where is o-1?")))
	// Output:
	// shipped
	// No order of that number.
}

// UseEscalation lets an agent hand a conversation to a person: a tool to ask for
// one, and while one is asked for, another instruction and no tool.
func UseEscalation(r *flue.Render, notify func(ctx context.Context, reason, key string) error) (escalated bool) {
	type input struct {
		Reason string `json:"reason" jsonschema:"why a person is needed, in one sentence"`
	}
	reason := flue.UsePersistentState(r, "escalation", "")
	if reason.Value() != "" {
		flue.UseInstruction(r, "A person has been asked to take over ("+reason.Value()+"). Say so, and decide nothing.")
		return true
	}
	flue.UseInstruction(r, "If you cannot help, or the customer is angry, call escalate.")
	flue.UseTool(r, flue.NewTool(flue.Tool{
		Name: "escalate", Description: "Ask a person to take the conversation over. Use it once.",
	}, func(ctx context.Context, in input) (string, error) {
		if err := notify(ctx, in.Reason, flue.CallKey(ctx)); err != nil {
			return "", fmt.Errorf("nobody could be told: %w", err)
		}
		return "A person will take over.", reason.Set(ctx, in.Reason)
	}))
	return false
}

// A custom hook is a function that calls hooks. It may take arguments and return
// what the agent should know.
func Example_customHook() {
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		if UseEscalation(r, func(_ context.Context, reason, _ string) error {
			fmt.Println("pager:", reason)
			return nil
		}) {
			return "Be kind."
		}
		return "Help the customer."
	}, func(req *model.Request) script.Turn {
		if script.Step(req) == 0 {
			return script.Call("escalate", map[string]string{"reason": "The customer is angry."})
		}
		return script.Say(fmt.Sprintf("A colleague will be with you. (%d tools, %s)", len(req.Tools), strings.Fields(req.System)[1]))
	})
	defer demo.close()

	fmt.Println(demo.say(flue.User("This is the third time!")))
	// Output:
	// pager: The customer is angry.
	// A colleague will be with you. (0 tools, kind.)
}

// UsePhases is a state machine: each phase has an instruction and the names of the
// phases that may follow. It returns the phase of this render.
func UsePhases(r *flue.Render, first string, phases map[string]Phase) string {
	type input struct {
		Phase string `json:"phase"`
	}
	at := flue.UsePersistentState(r, "phase", first)
	now := phases[at.Value()]
	flue.UseInstruction(r, now.Instruction)
	if len(now.Next) == 0 {
		return at.Value()
	}
	flue.UseTool(r, flue.NewTool(flue.Tool{
		Name: "go_on", Description: "Go on to the next phase when this one is done: " + strings.Join(now.Next, ", ") + ".",
	}, func(ctx context.Context, in input) (string, error) {
		for _, next := range now.Next {
			if in.Phase == next {
				return "Now in phase " + next + ".", at.Set(ctx, next)
			}
		}
		return "", fmt.Errorf("%q does not follow %q: choose one of %s", in.Phase, at.Value(), strings.Join(now.Next, ", "))
	}))
	return at.Value()
}

// A Phase is one state of [UsePhases].
type Phase struct {
	Instruction string
	Next        []string
}

// State decides which tools there are: the phase cannot be skipped, whatever the
// model tries.
func Example_stateMachine() {
	publish := flue.NewTool(flue.Tool{Name: "publish", Description: "Publish the text."},
		func(context.Context, struct{}) (string, error) { return "published", nil })
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		if UsePhases(r, "draft", map[string]Phase{
			"draft":   {"Write the text.", []string{"review"}},
			"review":  {"Check every fact.", []string{"draft", "publish"}},
			"publish": {"Publish it.", nil},
		}) == "publish" {
			flue.UseTool(r, publish)
		}
		return "You are an editor."
	}, func(req *model.Request) script.Turn {
		results := 0
		for _, m := range req.Messages {
			if m.Role == model.RoleTool {
				results++
			}
		}
		switch results {
		case 0, 2:
			return script.Call("go_on", map[string]string{"phase": "publish"})
		case 1:
			fmt.Println(latest(req))
			return script.Call("go_on", map[string]string{"phase": "review"})
		case 3:
			return script.Call("publish", "{}")
		}
		return script.Say(latest(req))
	})
	defer demo.close()

	fmt.Println(demo.say(flue.User("Write about rain.")))
	// Output:
	// "publish" does not follow "draft": choose one of review
	// published
}

// A Refund is what [UseRefundGate] asks for.
type Refund struct {
	Order string `json:"order"`
	Cents int    `json:"cents" min:"1"`
}

// UseRefundGate offers the tool refund, whose calls wait until decided says so.
func UseRefundGate(r *flue.Render,
	decided func(ctx context.Context, id string) (approved bool, by string, err error),
	refund func(ctx context.Context, in Refund, key string) (string, error),
) {
	waiting := flue.UsePersistentState(r, "refunds", map[string]Refund{})
	delivery := flue.UseDelivery(r)

	flue.UseTool(r, flue.NewTool(flue.Tool{Name: "refund", Description: "Refund an order. It waits for a person's approval."},
		func(ctx context.Context, in Refund) (map[string]string, error) {
			id := flue.CallKey(ctx)
			if err := waiting.Update(ctx, func(all map[string]Refund) map[string]Refund {
				all[id] = in
				return all
			}); err != nil {
				return nil, err
			}
			return map[string]string{"status": "pending_approval", "approvalId": id}, flue.EndTurn
		}))

	flue.UseAgentStart(r, func(ctx context.Context, s *flue.AgentStart) error {
		id := delivery.Attributes["approvalId"]
		in, ok := waiting.Value()[id]
		if delivery.Type != "refund-decided" || !ok {
			return nil // another message, or one that was handled before
		}
		approved, by, err := decided(ctx, id)
		if err != nil {
			return err
		}
		text := by + " denied the refund. Do not ask again; ask how to proceed."
		if approved {
			result, err := flue.DoOnce(ctx, s.Step, "refund:"+id, func(ctx context.Context) (string, error) {
				return refund(ctx, in, id)
			})
			switch {
			case errors.Is(err, flue.ErrOutcomeUnknown):
				text = by + " approved the refund. Whether it was made is unknown: find out."
			case err != nil:
				text = by + " approved the refund, and it failed: " + err.Error()
			default:
				text = by + " approved the refund: " + result
			}
		}
		if err := waiting.Update(ctx, func(all map[string]Refund) map[string]Refund {
			delete(all, id)
			return all
		}); err != nil {
			return err
		}
		return s.Append(flue.Signal("refund-result", text, map[string]string{"approvalId": id}))
	})
}

// A gate with rules of its own is made of hooks. Here decisions are kept in a table
// of the application, and the signal only says that there is one.
func Example_ownGate() {
	table := make(map[string]bool) // of decisions, by the id of the call
	demo := newExample(func(r *flue.Render) string {
		flue.UseModel(r, "demo/any")
		UseRefundGate(r, func(_ context.Context, id string) (bool, string, error) {
			return table[id], "Dana", nil
		}, func(_ context.Context, in Refund, _ string) (string, error) {
			return fmt.Sprintf("%d cents for %s", in.Cents, in.Order), nil
		})
		return ""
	}, func(req *model.Request) script.Turn {
		if text := latest(req); strings.Contains(text, "refund-result") {
			return script.Say(text)
		}
		return script.Call("refund", Refund{"o-1", 250})
	})
	defer demo.close()

	demo.say(flue.User("It was broken."))
	conversation, err := demo.Conversation(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	var waiting struct {
		ID string `json:"approvalId"`
	}
	if err := json.Unmarshal(conversation.Messages[1].Parts[0].Output, &waiting); err != nil {
		log.Fatal(err)
	}
	table[waiting.ID] = true
	heard := demo.say(flue.Signal("refund-decided", "The refund was decided.", map[string]string{"approvalId": waiting.ID}))
	fmt.Println(strings.Split(heard, "\n")[1])
	// Output: Dana approved the refund: 250 cents for o-1
}
