"""Every statement that the SQLite store runs. Values are bound, never written into the text."""

# --- responses -------------------------------------------------------------------------------

ADD_RESPONSE = """
INSERT INTO responses (
    id, object, created_at, status, error, incomplete_details, instructions, max_output_tokens,
    model, output, parallel_tool_calls, previous_response_id, reasoning, store, temperature, text,
    tool_choice, tools, top_p, truncation, usage, user_id, metadata, background, rest,
    tenant, thread, turn, forked_from, conversation, request, ended_at
) VALUES (
    :id, :object, :created_at, :status, :error, :incomplete_details, :instructions,
    :max_output_tokens, :model, :output, :parallel_tool_calls, :previous_response_id, :reasoning,
    :store, :temperature, :text, :tool_choice, :tools, :top_p, :truncation, :usage, :user_id,
    :metadata, :background, :rest,
    :tenant, :thread, :turn, :forked_from, :conversation, :request, :ended_at
)"""

# A response ends once: this changes nothing that has ended.
END_RESPONSE = """
UPDATE responses SET
    object = :object, created_at = :created_at, status = :status, error = :error,
    incomplete_details = :incomplete_details, instructions = :instructions,
    max_output_tokens = :max_output_tokens, model = :model, output = :output,
    parallel_tool_calls = :parallel_tool_calls, reasoning = :reasoning, store = :store,
    temperature = :temperature, text = :text, tool_choice = :tool_choice, tools = :tools,
    top_p = :top_p, truncation = :truncation, usage = :usage, user_id = :user_id,
    metadata = :metadata, background = :background, rest = :rest, ended_at = :ended_at
WHERE id = :id AND tenant = :tenant AND ended_at IS NULL
RETURNING conversation"""

FIND_RESPONSE = "SELECT * FROM responses WHERE id = :id AND tenant = :tenant"
DELETE_RESPONSE = "DELETE FROM responses WHERE id = :id AND tenant = :tenant"
FIND_UNFINISHED = (
    "SELECT id, tenant FROM responses WHERE ended_at IS NULL ORDER BY created_at, rowid"
)
FAIL_UNREADABLE = """
UPDATE responses SET status = 'failed', ended_at = :ended_at
WHERE id = :id AND tenant = :tenant AND ended_at IS NULL"""
FIND_PLACE = "SELECT thread, turn FROM responses WHERE id = :id AND tenant = :tenant"
FIND_TURN = "SELECT 1 FROM responses WHERE thread = :thread AND turn = :turn"
FIND_RUNNING_IN_CONVERSATION = """
SELECT id FROM responses
WHERE tenant = :tenant AND conversation = :conversation
    AND ended_at IS NULL AND conversation IS NOT NULL"""

FIND_IDEMPOTENCY_RECORD = (
    "SELECT fingerprint, response_id FROM idempotency WHERE tenant = :tenant AND key = :key"
)
ADD_IDEMPOTENCY_RECORD = """
INSERT INTO idempotency (tenant, key, fingerprint, response_id)
VALUES (:tenant, :key, :fingerprint, :response_id)"""

# One row for each input item, the response's own output beside it; a range for each thread.
READ_HISTORY = """
WITH RECURSIVE segment (thread, turn) AS (
    SELECT thread, turn FROM responses WHERE id = :id AND tenant = :tenant
    UNION ALL
    SELECT f.forked_from, f.turn - 1
    FROM segment JOIN responses f ON f.id = segment.thread
    WHERE f.forked_from IS NOT NULL
)
SELECT
    r.id AS response, r.turn, r.previous_response_id,
    CASE WHEN i.position IS NULL OR i.position = 0 THEN r.output END AS output,
    i.id, i.type, i.role, i.content, i.rest
FROM segment
JOIN responses r ON r.thread = segment.thread AND r.turn <= segment.turn
LEFT JOIN input_items i ON i.response_id = r.id
ORDER BY r.turn, i.position"""

# --- items -----------------------------------------------------------------------------------

ADD_INPUT = """
INSERT INTO input_items (id, response_id, position, type, role, content, created_at, rest)
VALUES (:id, :response_id, :position, :type, :role, :content, :created_at, :rest)"""
ADD_OUTPUT = """
INSERT INTO output_items (id, response_id, position) VALUES (:id, :response_id, :position)"""

INPUT_POSITIONS = """
SELECT min(position), max(position) FROM input_items WHERE id = :id AND response_id = :list"""
INPUT_ASCENDING = """
SELECT * FROM input_items
WHERE response_id = :list AND position > :low AND position < :high
ORDER BY position LIMIT :limit"""
INPUT_DESCENDING = """
SELECT * FROM input_items
WHERE response_id = :list AND position > :low AND position < :high
ORDER BY position DESC LIMIT :limit"""

FIND_OUTPUT_ITEM = """
SELECT r.output, o.position
FROM output_items o JOIN responses r ON r.id = o.response_id
WHERE o.id = :id AND r.tenant = :tenant ORDER BY r.rowid DESC LIMIT 1"""
FIND_INPUT_ITEM = """
SELECT i.*
FROM input_items i JOIN responses r ON r.id = i.response_id
WHERE i.id = :id AND i.type <> 'item_reference' AND r.tenant = :tenant
ORDER BY r.rowid DESC LIMIT 1"""
FIND_ITEM_IN_CONVERSATIONS = """
SELECT * FROM conversation_items
WHERE tenant = :tenant AND id = :id AND type <> 'item_reference' ORDER BY rowid DESC LIMIT 1"""

# --- events ----------------------------------------------------------------------------------

NEXT_EPOCH = """
UPDATE responses SET epoch = epoch + 1
WHERE id = :id AND tenant = :tenant AND ended_at IS NULL
RETURNING epoch"""

# The fence: only the newest worker goes on, only from the last number, only before the end.
ADVANCE_SEQUENCE = """
UPDATE responses SET last_seq = last_seq + :count
WHERE id = :id AND tenant = :tenant AND epoch = :epoch AND last_seq = :after
    AND ended_at IS NULL"""
ADD_EVENT = "INSERT INTO events (response_id, seq, body) VALUES (?, ?, ?)"
FIND_LOG = """
SELECT last_seq, ended_at, swept FROM responses WHERE id = :id AND tenant = :tenant"""
READ_EVENTS = """
SELECT seq, body FROM events WHERE response_id = :id AND seq > :after ORDER BY seq LIMIT :limit"""
HAS_NEWS = "SELECT last_seq > :after OR ended_at IS NOT NULL FROM responses WHERE id = :id"

# --- retention -------------------------------------------------------------------------------

FIND_OLD_LOGS = """
SELECT id, swept, last_seq FROM responses
WHERE ended_at < :before AND swept <= last_seq ORDER BY ended_at LIMIT :limit"""
SWEEP_EVENTS = "DELETE FROM events WHERE response_id = :id AND seq < :swept"
SWEEP_LOG = "UPDATE responses SET swept = :swept WHERE id = :id"
SWEEP_RESPONSES = """
DELETE FROM responses WHERE id IN (
    SELECT id FROM responses
    WHERE ended_at < :before AND swept > last_seq ORDER BY ended_at LIMIT :limit
)"""
SWEEP_THREADS = """
DELETE FROM hashbrown_threads WHERE rowid IN (
    SELECT rowid FROM hashbrown_threads WHERE saved_at < :before ORDER BY saved_at LIMIT :limit
)"""

# --- threads ---------------------------------------------------------------------------------

SAVE_THREAD = """
INSERT INTO hashbrown_threads (tenant, id, messages, saved_at)
VALUES (:tenant, :id, :messages, :saved_at)
ON CONFLICT (tenant, id) DO UPDATE SET messages = :messages, saved_at = :saved_at"""
FIND_THREAD = "SELECT messages FROM hashbrown_threads WHERE tenant = :tenant AND id = :id"

# --- conversations ---------------------------------------------------------------------------

SAVE_CONVERSATION = """
INSERT INTO conversations (tenant, id, created_at, metadata)
VALUES (:tenant, :id, :created_at, :metadata)
ON CONFLICT (tenant, id) DO UPDATE SET created_at = :created_at, metadata = :metadata"""
FIND_CONVERSATION = "SELECT * FROM conversations WHERE tenant = :tenant AND id = :id"
DELETE_CONVERSATION = "DELETE FROM conversations WHERE tenant = :tenant AND id = :id"

NEXT_POSITION = """
SELECT coalesce(max(position), -1) + 1 FROM conversation_items
WHERE tenant = :tenant AND conversation = :list"""
ADD_CONVERSATION_ITEM = """
INSERT INTO conversation_items (tenant, conversation, position, id, type, role, content, rest)
VALUES (:tenant, :list, :position, :id, :type, :role, :content, :rest)"""
ADD_INPUT_TO_CONVERSATION = """
INSERT INTO conversation_items (tenant, conversation, position, id, type, role, content, rest)
SELECT :tenant, :list, :position + i.position, i.id, i.type, i.role, i.content, i.rest
FROM input_items i WHERE i.response_id = :id ORDER BY i.position"""
DELETE_CONVERSATION_ITEM = """
DELETE FROM conversation_items WHERE tenant = :tenant AND conversation = :list AND id = :id"""

FIND_CONVERSATION_ITEM = """
SELECT * FROM conversation_items
WHERE tenant = :tenant AND conversation = :list AND id = :id ORDER BY position DESC LIMIT 1"""
CONVERSATION_POSITIONS = """
SELECT min(position), max(position) FROM conversation_items
WHERE tenant = :tenant AND id = :id AND conversation = :list"""
CONVERSATION_ASCENDING = """
SELECT * FROM conversation_items
WHERE tenant = :tenant AND conversation = :list AND position > :low AND position < :high
ORDER BY position LIMIT :limit"""
CONVERSATION_DESCENDING = """
SELECT * FROM conversation_items
WHERE tenant = :tenant AND conversation = :list AND position > :low AND position < :high
ORDER BY position DESC LIMIT :limit"""
