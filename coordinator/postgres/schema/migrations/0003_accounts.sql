-- Several accounts of one agent: a group is free text, and what the user calls an account is
-- unique among those of its agent on its host.

UPDATE accounts SET name = NULL;

ALTER TABLE accounts
    DROP CONSTRAINT accounts_group_name_key,
    ALTER COLUMN group_name DROP NOT NULL,
    ADD COLUMN held BOOLEAN NOT NULL DEFAULT FALSE,
    ADD CONSTRAINT accounts_name_key UNIQUE (host, tool, name);

COMMENT ON COLUMN accounts.host IS 'Whose account it is: id begins with it.';
COMMENT ON COLUMN accounts.enabled IS 'FALSE: a person has disabled it.';
COMMENT ON COLUMN accounts.held IS 'No run starts with it until a person, or an event, ends that.';
COMMENT ON COLUMN accounts.reason IS 'Why it is held, or cools down.';
COMMENT ON COLUMN accounts.env_vars IS 'The variables that it gives its agent, by name; never a value.';
