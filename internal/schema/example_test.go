package schema_test

import (
	"fmt"

	"github.com/flue-go/flue/internal/schema"
)

type refundInput struct {
	OrderID string `json:"orderId" jsonschema:"order number, such as ORD-2024-0042" pattern:"^ORD-"`
	Reason  string `json:"reason" enum:"damaged,late,unwanted"`
	Items   []int  `json:"items,omitempty" minItems:"1"`
}

func ExampleFor() {
	s, err := schema.For[refundInput]()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s)
	// Output:
	// {"type":"object","properties":{"orderId":{"type":"string","description":"order number, such as ORD-2024-0042","pattern":"^ORD-"},"reason":{"type":"string","enum":["damaged","late","unwanted"]},"items":{"type":"array","items":{"type":"integer"},"minItems":1}},"required":["orderId","reason"],"additionalProperties":false}
}

func ExampleSchema_PrepareArguments() {
	s, err := schema.For[refundInput]()
	if err != nil {
		fmt.Println(err)
		return
	}
	arguments, repairs, err := s.PrepareArguments(`{"orderId": "ORD-1", "reason": "late", "items": "[3]"}`)
	fmt.Println(string(arguments), repairs, err)

	_, _, err = s.PrepareArguments(`{"orderid": "ORD-1", "reason": "dmaaged", "items": [3, "x"]}`)
	fmt.Println(err)

	_, _, err = s.PrepareArguments(`{"orderId": "ORD-1", }`)
	fmt.Println(err)
	// Output:
	// {"orderId":"ORD-1","reason":"late","items":[3]} [decoded items] <nil>
	// 4 problems:
	// - orderId: is required; expected a string
	// - orderid: unknown property; did you mean orderId?; allowed: orderId, reason, items
	// - reason: expected one of "damaged", "late", "unwanted"; did you mean "damaged"?, got the string "dmaaged"
	// - items[1]: expected an integer, got the string "x"
	// not valid JSON at line 1, column 22: expected a property name, got '}'; remove the comma before it, near "{\"orderId\": \"ORD-1\", }"
}

func ExampleDecode() {
	s, err := schema.For[refundInput]()
	if err != nil {
		fmt.Println(err)
		return
	}
	in, err := schema.Decode[refundInput](s, []byte(`{"orderId":"ORD-1","reason":"late","items":null}`))
	fmt.Printf("%+v %v\n", in, err)
	// Output: {OrderID:ORD-1 Reason:late Items:[]} <nil>
}
