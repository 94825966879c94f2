package bedrock_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/bedrock"
)

// Stream an answer, under a guardrail. A program has its configuration from
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//
// of github.com/aws/aws-sdk-go-v2/config; the one here has a client that stands
// in for Bedrock.
func Example() {
	cfg := aws.Config{Region: "eu-central-1", Credentials: credentials, HTTPClient: standIn()}
	p := bedrock.New(bedrock.Config{AWS: cfg, Prepare: func(in *bedrockruntime.ConverseStreamInput) {
		in.GuardrailConfig = &types.GuardrailStreamConfiguration{
			GuardrailIdentifier: aws.String("gr-1"), GuardrailVersion: aws.String("1"),
		}
	}})
	req := &model.Request{
		Model:    "eu.anthropic.claude-haiku-4-5-20251001-v1:0",
		Messages: []model.Message{{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "Hi!"}}}},
	}
	for event, err := range p.Stream(context.Background(), req) {
		if err != nil {
			fmt.Println("error:", err)
			return
		}
		switch e := event.(type) {
		case model.Delta:
			fmt.Printf("%q\n", e.Text)
		case model.Done:
			fmt.Println(e.Stop, e.Usage.Total(), "tokens")
		}
	}
	// Output:
	// "Hello"
	// " there."
	// stop 13 tokens
}
