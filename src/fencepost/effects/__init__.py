"""The tables in a database that receives effects: installed, verified and pruned by an operator."""
