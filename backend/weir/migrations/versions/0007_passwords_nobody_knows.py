"""passwords nobody knows

Revision ID: 0007
Revises: 0006
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    # Of roles whose rows were made again from the object store.
    op.alter_column("roles", "password_sealed", nullable=True)
    op.alter_column("roles", "scram_verifier", nullable=True)


def downgrade() -> None:
    raise NotImplementedError("there is no way back to passwords that are all known")
