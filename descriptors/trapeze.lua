-- Shows Trapeze's frames (SPEC.md 8, EtherType 0x88b5) in Wireshark and tshark:
--
--   tshark -X lua_script:trapeze.lua -r frames.pcapng
--   cp trapeze.lua ~/.local/lib/wireshark/plugins/     # for good

local types = { "data", "ack", "probe", "connect request", "connect accept", "connect reject", "disconnect",
	"RDMA write", "RDMA read request", "RDMA read response", "cells",
	"cell stop", "cell start" }
local reliabilities = { [0] = "unreliable", "reliable delivery", "reliable reception" }
local header, reference, extension, connect_body, cell = 64, 16, 16, 96, 56

local trapeze = Proto("trapeze", "Trapeze")
local fields = {
	version = ProtoField.uint8("trapeze.version", "Version"),
	type = ProtoField.uint8("trapeze.type", "Type", base.DEC, types),
	flags = ProtoField.uint16("trapeze.flags", "Flags", base.HEX),
	length = ProtoField.uint16("trapeze.length", "Length"),
	destination = ProtoField.uint32("trapeze.destination_endpoint", "Destination endpoint"),
	source = ProtoField.uint32("trapeze.source_endpoint", "Source endpoint"),
	key = ProtoField.uint32("trapeze.key", "Key", base.HEX),
	psn = ProtoField.uint32("trapeze.psn", "PSN", base.HEX),
	ack = ProtoField.uint32("trapeze.ack", "Ack", base.HEX),
	credit = ProtoField.uint32("trapeze.credit", "Credit"),
	message = ProtoField.uint32("trapeze.message", "Message"),
	duplicates = ProtoField.uint32("trapeze.duplicates", "Data frames had more than once"),
	extent = ProtoField.uint32("trapeze.extent", "Extent"),
	offset = ProtoField.uint32("trapeze.offset", "Offset"),
	selective = ProtoField.uint64("trapeze.selective", "Selective acknowledgement", base.HEX),
	mtu = ProtoField.uint32("trapeze.mtu", "MTU"),
	longest = ProtoField.uint32("trapeze.longest_request", "Longest request"),
	immediate = ProtoField.uint32("trapeze.immediate", "Immediate", base.HEX),
	result = ProtoField.uint32("trapeze.result", "Result"),
	had = ProtoField.uint32("trapeze.had", "Data frames had"),
	checksum = ProtoField.uint32("trapeze.checksum", "Checksum", base.HEX),
	address = ProtoField.uint64("trapeze.rdma.address", "Address", base.HEX),
	handle = ProtoField.uint32("trapeze.rdma.handle", "Handle", base.HEX),
	request = ProtoField.uint32("trapeze.rdma.request", "Request", base.HEX),
	region = ProtoField.uint32("trapeze.reference.region", "Region"),
	region_length = ProtoField.uint32("trapeze.reference.length", "Length"),
	region_offset = ProtoField.uint64("trapeze.reference.offset", "Offset", base.HEX),
	own_key = ProtoField.uint32("trapeze.connect.key", "Key", base.HEX),
	max_transfer = ProtoField.uint32("trapeze.connect.max_transfer", "MaxTransfer"),
	rights = ProtoField.uint32("trapeze.connect.rights", "Rights", base.HEX),
	timeout = ProtoField.uint32("trapeze.connect.timeout", "Timeout, ms"),
	reliability = ProtoField.uint8("trapeze.connect.reliability", "Reliability", base.DEC, reliabilities),
	kind = ProtoField.uint8("trapeze.connect.kind", "Kind"),
	options = ProtoField.uint16("trapeze.connect.options", "Options", base.HEX),
	wire = ProtoField.uint32("trapeze.connect.wire", "Wire", base.HEX),
	remote = ProtoField.bytes("trapeze.connect.remote", "Discriminator asked for"),
	own = ProtoField.bytes("trapeze.connect.local", "Own discriminator"),
	payload = ProtoField.bytes("trapeze.payload", "Payload"),
	vpi = ProtoField.uint32("trapeze.cell.vpi", "VPI", base.DEC, nil, 0x0ff00000),
	vci = ProtoField.uint32("trapeze.cell.vci", "Channel (VCI)", base.DEC, nil, 0x000ffff0),
	pti = ProtoField.uint32("trapeze.cell.pti", "PTI (1 ends a PDU)", base.DEC, nil, 0x0000000e),
	clp = ProtoField.uint32("trapeze.cell.clp", "CLP", base.DEC, nil, 0x00000001),
	hec = ProtoField.uint8("trapeze.cell.hec", "Header check", base.HEX),
	tag = ProtoField.uint24("trapeze.cell.tag", "Tag", base.HEX),
	cell = ProtoField.bytes("trapeze.cell.payload", "Payload of the cell"),
}
local bits = {}
for i, name in ipairs({ "first", "last", "immediate", "ack_request", "checksum", "echo", "reference" }) do
	bits[i] = ProtoField.bool("trapeze.flags." .. name, name, 16, nil, 2 ^ (i - 1))
end
local all = { (unpack or table.unpack)(bits) }
for _, f in pairs(fields) do
	table.insert(all, f)
end
trapeze.fields = all -- a copy: what is added later does not count
local short = ProtoExpert.new("trapeze.short", "Frame shorter than its header and Length say", expert.group.MALFORMED, expert.severity.ERROR)
local reserved = ProtoExpert.new("trapeze.reserved", "Reserved flags, an unknown type, or another version", expert.group.PROTOCOL, expert.severity.WARN)
trapeze.experts = { short, reserved }

-- numbers adds little-endian fields that follow each other from an offset on: pairs of field and size.
local function numbers(tree, b, at, list)
	for i = 1, #list, 2 do
		tree:add_le(list[i], b(at, list[i + 1]))
		at = at + list[i + 1]
	end
end

-- What the words from Message to Immediate are, by type.
local function words(kind)
	if kind == 2 then
		return { fields.duplicates, 4, fields.selective, 8, fields.had, 4 }
	elseif kind == 4 or kind == 5 then
		return { fields.message, 4, fields.mtu, 4, fields.longest, 4, fields.immediate, 4 }
	elseif kind == 6 or kind == 7 then
		return { fields.message, 4, fields.extent, 4, fields.offset, 4, fields.result, 4 }
	end
	return { fields.message, 4, fields.extent, 4, fields.offset, 4, fields.immediate, 4 }
end

function trapeze.dissector(frame, pinfo, root)
	-- Wireshark gives what lies behind the Ethernet header; offsets here are those of SPEC.md less 14.
	local function at(offset) return offset - 14 end
	pinfo.cols.protocol = "Trapeze"
	local tree = root:add(trapeze, frame())
	if frame:len() < at(header) then
		tree:add_proto_expert_info(short)
		return
	end
	local kind, flags, length = frame(at(15), 1):uint(), frame(at(16), 2):le_uint(), frame(at(18), 2):le_uint()
	tree:add(fields.version, frame(at(14), 1))
	tree:add(fields.type, frame(at(15), 1))
	local set = tree:add_le(fields.flags, frame(at(16), 2))
	for _, bit in ipairs(bits) do
		set:add_le(bit, frame(at(16), 2))
	end
	if frame(at(14), 1):uint() ~= 1 or types[kind] == nil or flags >= 0x80 then
		tree:add_proto_expert_info(reserved)
	end
	numbers(tree, frame, at(18), { fields.length, 2, fields.destination, 4, fields.source, 4, fields.key, 4, fields.psn, 4,
		fields.ack, 4, fields.credit, 4 })
	numbers(tree, frame, at(44), words(kind))
	tree:add_le(fields.checksum, frame(at(60), 4))

	local text = string.format("%s, endpoint %d to %d", types[kind] or ("type " .. kind), frame(at(24), 4):le_uint(), frame(at(20), 4):le_uint())
	if kind == 1 or kind >= 8 and kind <= 10 then
		text = string.format("%s, PSN %08x, message %d, %d bytes at %d of %d", text, frame(at(32), 4):le_uint(),
			frame(at(44), 4):le_uint(), length, frame(at(52), 4):le_uint(), frame(at(48), 4):le_uint())
	elseif kind == 2 or kind == 3 then
		text = string.format("%s, next %08x, credit %d", text, frame(at(36), 4):le_uint(), frame(at(40), 4):le_uint())
	end
	pinfo.cols.info = text

	local behind = header
	local function room(bytes)
		if frame:len() >= at(behind + bytes) then
			return true
		end
		tree:add_proto_expert_info(short)
		return false
	end
	if kind >= 8 and kind <= 10 then
		if not room(extension) then return end
		numbers(tree:add(trapeze, frame(at(behind), extension), "Extension"), frame, at(behind),
			{ fields.address, 8, fields.handle, 4, fields.request, 4 })
		behind = behind + extension
	end
	if (kind == 4 or kind == 5) and length >= connect_body then
		if not room(connect_body) then return end
		numbers(tree:add(trapeze, frame(at(behind), connect_body), "Connect body"), frame, at(behind),
			{ fields.own_key, 4, fields.max_transfer, 4, fields.rights, 4, fields.timeout, 4, fields.reliability, 1,
				fields.kind, 1, fields.options, 2, fields.wire, 4, fields.remote, 36, fields.own, 36 })
		behind, length = behind + connect_body, length - connect_body
	end
	if math.floor(flags / 0x40) % 2 == 1 then -- references stand for the payload
		while frame:len() >= at(behind + reference) do
			numbers(tree:add(trapeze, frame(at(behind), reference), "Reference"), frame, at(behind),
				{ fields.region, 4, fields.region_length, 4, fields.region_offset, 8 })
			behind = behind + reference
		end
	elseif kind == 11 and room(length) then
		for start = behind, behind + length - cell, cell do
			local one = tree:add(trapeze, frame(at(start), cell), string.format("Cell of channel %d", frame(at(start), 4):bitfield(12, 16)))
			for _, field in ipairs({ fields.vpi, fields.vci, fields.pti, fields.clp }) do
				one:add(field, frame(at(start), 4))
			end
			one:add(fields.hec, frame(at(start) + 4, 1))
			one:add_le(fields.tag, frame(at(start) + 5, 3))
			one:add(fields.cell, frame(at(start) + 8, cell - 8))
		end
	elseif length > 0 and room(length) then
		tree:add(fields.payload, frame(at(behind), length))
	end
end

DissectorTable.get("ethertype"):add(0x88b5, trapeze)
