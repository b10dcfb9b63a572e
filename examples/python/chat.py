"""A conversation with memory. `pip install ctxpage`, then:

    python3 chat.py agent.ctx "what may I refund?"
"""

import sys

import ctxpage


def main(path: str, question: str) -> None:
    with ctxpage.open(path) as db:  # starts `dbctl serve` if nothing serves the file
        memory = db.scope("acme/support", actor="chat.py")
        memory.put("policy", "Refunds up to $400 need no approval.")
        chat = memory.session("chat-1")
        asked = chat.user(question)
        context = memory.assemble(question, 2000, session="chat-1", messages="openai")
        # client.chat.completions.create(model=…, **context.messages("openai"))
        answer = "You may refund up to $400."  # what the model said
        chat.assistant(answer, of=context)
        with memory.transaction(context) as tx:
            tx.put("answer", answer)
            kept = tx.commit(0.9, by="reviewer")
        try:
            with memory.transaction(context) as tx:
                tx.put("guess", "Or more.")
                tx.commit()
        except ctxpage.Held as held:
            print("without a verdict:", held.code)
        print("committed:", kept["refs"][0])
        print("recalled:", memory.get(ref=asked).get("text"))
        print("why:", *memory.why(context, "policy")["steps"][:1])


if __name__ == "__main__":
    main(*sys.argv[1:3])
