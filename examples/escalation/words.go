package main

// The sentences the store is written with. Slots in braces are filled per text.

var firstNames = []string{"Ada", "Bela", "Carla", "Deniz", "Emil", "Fatou", "Greta", "Hiro", "Ines", "Jonas", "Kemal", "Lena", "Marta", "Nils", "Oda", "Pavel", "Rosa", "Samir", "Tilda", "Yusuf"}

var lastNames = []string{"Abel", "Brandt", "Castro", "Dietz", "Ekdal", "Farkas", "Gruber", "Haddad", "Ivers", "Jansen", "Kovac", "Lund", "Moreau", "Novak", "Olsen", "Petrov", "Quist", "Rossi", "Sato", "Weiss"}

var companies = []string{"Northgate Dental", "Harbour Bikes", "Linden Press", "Oak & Ember", "Tideline Yachts", "Copper Kettle Foods", "Bluefield Survey", "Marlow Textiles"}

var products = []string{"the annual team plan", "the storage add-on", "the analytics bundle", "the starter plan", "the training seats", "the export module"}

var caseCustomer = []string{
	"I see the charge of {amount} two times on my card statement, both from the same day.",
	"Your system says paid once, my bank says paid twice, and I trust the bank.",
	"I sent the statement as a PDF on Monday, did anybody open it?",
	"We are a small company, {amount} missing for two weeks is not a detail for us.",
	"The first payment page froze, so I pressed the button again. Nothing warned me.",
	"My accountant closes the month on Friday and wants this settled before then.",
	"Please do not tell me again to wait three to five working days.",
	"Is it one invoice or two? I only ever received {invoice}.",
	"The second entry has another reference, but the same amount to the cent.",
	"Last time somebody promised to call me back and nobody did.",
	"I do not want a voucher, I want the money back on the card.",
	"Could you at least confirm in writing that you see both entries?",
	"I have been a customer for six years and this is the first time I complain.",
	"If it has to go to somebody else, fine, but then tell me the name.",
	"My colleague talked to you as well, her ticket should be linked to this one.",
	"The card ends in {card}, the holder is {customer}, you can check that.",
	"So what exactly is missing on your side? I have given you everything twice.",
	"And will the next renewal be charged once, or do I have to watch it?",
	"I can wait until tomorrow noon, not longer.",
	"Thank you, that is the first clear sentence I hear about it.",
	"Does the refund come from you or from the payment provider?",
	"Then the fee that my bank took for the second booking is still open.",
	"It is about {product}, we did not order anything else this year.",
	"I can see the ticket in the portal, but its status has not moved since last week.",
}

var caseAgent = []string{
	"I have {invoice} open in front of me, give me a moment to read what was written before.",
	"Both entries are here: the first was captured at 09:14, the second forty seconds later.",
	"The second capture has no order behind it, so it looks like a repeated request of the payment page.",
	"I am linking your colleague's ticket now, so that nobody has to explain it again.",
	"The statement arrived, it is readable, and both lines are on page two.",
	"I note that you want it on the card and not as credit.",
	"Before I send money back I have to check which limit applies to me today.",
	"Finance has to confirm that the second capture was settled, not only authorised.",
	"An authorisation that is never captured falls off by itself, a capture does not.",
	"I put the case to the billing queue with the reference of the second booking.",
	"The renewal is set to a single charge, I checked the subscription: one seat group, one date.",
	"You will get a written confirmation with both references, it goes to the address on the account.",
	"I cannot see bank fees from here, please send the line from your statement when you have it.",
	"The contract lists {customer} as the person for billing, so I may talk about amounts with you.",
	"I understand that the month is closing, I will write that on top of the case.",
	"Nobody has touched the case since Thursday, I am sorry about that.",
	"I asked the payment team for the acquirer's reference, they answer until noon as a rule.",
	"What I can tell you for certain: there is one order, one licence, and two captures.",
	"My shift ends at six, Ines takes over and has everything in writing.",
	"For {product} there is only this one invoice this year, I checked the other two accounts as well.",
	"I will not close the ticket before you have told me that the money has arrived.",
	"The portal shows the status of the queue, not of the case, that is why it looks frozen.",
	"I am adding a reminder for tomorrow at ten, with your number.",
	"If the settlement file confirms it, the second booking can go back the same day.",
}

var refundCustomer = []string{
	"I was charged twice on the same invoice and I want a refund of the second charge.",
	"Can you refund the charge today, or does a manager have to nod first?",
	"What is the refund limit for you? The invoice says {amount}.",
	"The refund was promised on invoice {invoice}, and the second charge is still there.",
	"Why do I need a manager for a refund of {amount}?",
	"I wanted a refund last week and the charge came again on the next invoice.",
	"A customer who is charged twice should not have to beg for the refund.",
	"So the limit is a rule of yours, and my refund hangs on it?",
	"Then refund what is within the limit now and leave the rest to the manager.",
	"The second charge has the same invoice number, surely that can be refunded.",
	"I need the refund before the next invoice, otherwise I am charged three times.",
}

var refundAgent = []string{
	"The refund limit is $200, anything above goes to a manager.",
	"I checked: the refund limit is $200, so I may refund this charge myself.",
	"The invoice was charged twice, I can see both, and the refund goes to the card.",
	"Above the limit a manager has to nod, I call him while you are on the line.",
	"The second charge is refunded, the invoice stays open until it has arrived.",
	"The refund is within the limit, the customer gets a mail about the second charge.",
	"A refund needs the invoice and the card, then the charge is reversed.",
	"Policy says the refund limit is $200 and I am not allowed to split a charge in two.",
	"I take the refund of the second charge to the manager on duty.",
	"Refund booked on the invoice, the limit was not touched.",
	"The customer was charged twice, I wrote that into the refund form.",
}

var otherCustomer = []string{
	"The parcel says delivered, but the porter has nothing for us.",
	"I cannot sign in since the new phone, the codes go to the old number.",
	"Two of the training seats show up under the wrong team.",
	"The export stops at row ten thousand without any message.",
	"We moved, the address on the delivery note is still the old one.",
	"How do I add a second administrator to the workspace?",
	"The label printer prints everything rotated since the update.",
	"Our reseller says the licence key belongs to somebody else.",
	"The dashboard shows last quarter although I picked this one.",
	"Could the courier come after four? The gate is closed before.",
	"I would like to change from monthly to yearly from the next period on.",
	"The sample box was open when it came, two items are missing.",
	"Does the storage add-on count snapshots or only live files?",
	"The calendar sync doubles every meeting of the sales team.",
}

var otherAgent = []string{
	"I can see the tracking, the driver marked it at the side entrance.",
	"I reset the second factor, you get a mail with a link that works for an hour.",
	"The seats were assigned by an import, I move them over now.",
	"There is a row limit for the quick export, the scheduled one has none.",
	"The address is changed from today, parcels on the road keep the old one.",
	"Administrators are added under settings, people, roles.",
	"That printer needs the driver of May, the new one turns the page.",
	"I compare the key with the reseller's list and come back to you.",
	"The dashboard keeps the filter of the last person, clear it at the top right.",
	"I wrote the time window on the delivery, the courier sees it in the morning.",
	"The change takes effect with the next period, nothing is billed before.",
	"I send the two items with the next box, there is nothing to return.",
	"Only live files are counted, snapshots are free for thirty days.",
	"Disconnect the calendar once and connect it again, then the doubles go.",
}

var ticketLines = []string{
	"Status changed from open to waiting for customer.",
	"Customer sent a screenshot of the portal.",
	"Linked to a case of the same workspace.",
	"Priority raised on request of the account manager.",
	"Reproduced on the staging system with the same browser.",
	"Handed over to the evening shift with a short summary.",
	"Customer confirmed that the workaround is good enough for now.",
	"Waiting for the supplier of the label paper.",
	"Answered with the standard text on delivery windows.",
	"Second reminder sent, no answer so far.",
	"Closed automatically after fourteen quiet days.",
	"Reopened, the error came back after the update.",
	"Moved to the queue for workspace settings.",
	"Time spent: twenty minutes, mostly reading old mails.",
}

var noteLines = []string{
	"Caller prefers mail to phone, mornings only.",
	"Sounded annoyed, calmed down once the delivery date was clear.",
	"Maybe offer the yearly plan at the next renewal.",
	"Thinks the portal is slow, probably an old browser.",
	"Asked about a student discount, told her there is none.",
	"Has a colleague who handles everything about deliveries.",
	"I believe the account moved to the northern region, not sure.",
	"Wants a call from somebody who speaks Portuguese.",
	"Mentioned a competitor, did not say which one.",
	"Remember to check whether the training seats were moved.",
}

var factLines = []string{
	"Workspace has two administrators and eleven seats.",
	"Preferred channel is mail, language is English.",
	"Region is north, time zone is Berlin.",
	"Deliveries go to the side entrance, before four in the afternoon.",
	"The contract renews in the autumn, notice is three months.",
	"The label printer is of the older series.",
	"Single sign-on is switched on, with the directory of the parent company.",
	"The export runs every night at two and goes to their own bucket.",
}

var articleTopics = []struct{ name, title, about string }{
	{"second-factor", "Resetting the second factor", "signing in"},
	{"delivery-windows", "Delivery windows and side entrances", "deliveries"},
	{"seat-import", "Importing seats from a list", "team seats"},
	{"row-limits", "Row limits of exports", "exports"},
	{"label-printers", "Label printers and drivers", "printing"},
	{"workspace-roles", "Roles in a workspace", "administration"},
	{"calendar-sync", "Calendar sync and doubled meetings", "calendars"},
	{"snapshots", "What storage counts", "storage"},
	{"plan-changes", "Changing from monthly to yearly", "plans"},
	{"reseller-keys", "Licence keys from resellers", "licences"},
}

var articleLines = []string{
	"Ask for the workspace name first, mail addresses are often shared.",
	"Look at the history of the last thirty days before you change anything.",
	"If two settings disagree, the one on the workspace wins over the one on the account.",
	"Write down what you saw in the words of the customer, not in ours.",
	"A change made here is visible to the customer within ten minutes.",
	"Screenshots go into the ticket, never into the chat.",
	"When the page shows an error with a number, the number belongs into the title of the ticket.",
	"For {about} there is a test workspace, use it before you promise anything.",
	"The evening shift has no access to the settings of partners.",
	"Do not reset more than one thing at a time, or nobody will know which one helped.",
	"If the customer has a named account manager, put that person in copy.",
	"Questions about {about} that come up three times a week deserve a line in this article.",
	"The older form of the page is still reachable for workspaces made before 2022.",
	"Close the ticket only when the customer has answered or fourteen days are over.",
}

var refundArticleLines = []string{
	"A customer who was charged twice sees both charges on one invoice, so ask for the invoice first.",
	"The second charge is the one to refund, the first one belongs to the order.",
	"A refund within the limit needs no manager, but it needs both references on the case.",
	"A refund above the limit is asked of the manager on duty, who may refund or wait.",
	"Agents never split a charge to stay below the limit.",
	"The customer is told the sum, the invoice and the day, in this order.",
	"If the second charge was only authorised, there is nothing to refund, it falls off by itself.",
	"Refunds go to the card that was charged, without exception.",
	"What the bank of the customer takes for a charge is another case.",
	"Each refund is one case: twice charged, once refunded.",
}
