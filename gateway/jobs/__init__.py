"""Work that workers hold, and what becomes of it when one dies."""
